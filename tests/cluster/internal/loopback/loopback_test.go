package loopback

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPools_Disjoint(t *testing.T) {
	seen := map[string]bool{}
	for range 20 {
		p, err := NewPool()
		harness.Must(t, err)
		defer func() {
			if err := p.Release(); err != nil {
				t.Error(err)
			}
		}()
		if second := p.base[1]; second < 64 || second >= 192 {
			t.Errorf("127.%d is used by the system", second)
		}
		for range hosts {
			address, err := p.Take()
			if err != nil || seen[address] {
				t.Fatalf("%s was allocated twice (%v)", address, err)
			}
			seen[address] = true
		}
		if address, err := p.Take(); err == nil {
			t.Errorf("a full block has %s", address)
		}
		for _, freed := range []string{p.address(hosts).String(), p.address(1).String()} {
			p.GiveBack(freed)
			listener, err := net.Listen("tcp", net.JoinHostPort(freed, "61000"))
			harness.Must(t, err)
			listener.Close()
		}
		if address, err := p.Take(); err != nil || address != p.address(hosts).String() {
			t.Errorf("%s is reused (%v), want the address that was freed first", address, err)
		}
	}
}

func TestPoolRelease(t *testing.T) {
	p, err := NewPool()
	harness.Must(t, err)
	held := netip.AddrPortFrom(p.address(hosts+1), reservationPort).String()
	if listener, err := net.Listen("tcp4", held); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%s is free: %v, %v", held, listener, err)
	}
	if err := p.Release(); err != nil {
		t.Error(err)
	}
	listener, err := net.Listen("tcp4", held)
	if err != nil {
		t.Fatalf("%s is still reserved: %v", held, err)
	}
	listener.Close()
}
