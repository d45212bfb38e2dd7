package loopback

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBlocks_Disjoint(t *testing.T) {
	seen := map[string]bool{}
	for range 20 {
		block, err := Reserve()
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := block.Release(); err != nil {
				t.Error(err)
			}
		}()
		if second := block.base[1]; second < 64 || second >= 192 {
			t.Errorf("127.%d is used by the system", second)
		}
		for _, n := range []int{1, Hosts} {
			address, err := block.Address(n)
			if err != nil {
				t.Fatal(err)
			}
			if seen[address] {
				t.Errorf("%s was allocated twice", address)
			}
			seen[address] = true
			listener, err := net.Listen("tcp", net.JoinHostPort(address, "61000"))
			if err != nil {
				t.Error(err)
				continue
			}
			listener.Close()
		}
	}
}

func TestBlockRelease(t *testing.T) {
	block, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	held := netip.AddrPortFrom(block.address(Hosts+1), reservationPort).String()
	if listener, err := net.Listen("tcp4", held); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%s is free: %v, %v", held, listener, err)
	}
	if err := block.Release(); err != nil {
		t.Error(err)
	}
	listener, err := net.Listen("tcp4", held)
	if err != nil {
		t.Fatalf("%s is still reserved: %v", held, err)
	}
	listener.Close()
}
