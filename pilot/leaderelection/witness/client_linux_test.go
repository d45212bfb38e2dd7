package witness

import (
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv("MODE"); mode != "" {
		supervised(mode)
	}
	goleak.VerifyTestMain(m)
}

// connected returns a client, and the socket of its witness.
func connected(t *testing.T) (*Client, net.Conn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fds[1]), "witness")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	c := newClient("", fds[0])
	t.Cleanup(func() {
		_ = syscall.Close(fds[0])
		_ = conn.Close()
	})
	return c, conn
}

func term(n int) k8sleaderelection.WitnessedTerm {
	return k8sleaderelection.WitnessedTerm{LockType: "leases", Namespace: "n", Name: fmt.Sprint("lock-", n), Holder: "a", Transitions: n}
}

// A witness that does not read never blocks a leader. Later renewals send the missing terms.
func TestClient_SlowWitness(t *testing.T) {
	c, conn := connected(t)
	const all = 1000
	for n := range all {
		c.Register(term(n))
	}
	c.Remove(term(0))
	if len(c.unsent) == 0 {
		t.Fatal("all terms fit into the socket: the test shows nothing")
	}
	s := session{terms: terms{}}
	ended := make(chan bool)
	go func() { ended <- s.receive(conn, Options{}.withDefaults()) }()
	for len(c.unsent) > 0 {
		c.Register(term(1))
	}
	_ = syscall.Close(c.fd)
	if !<-ended || len(s.terms) != all-1 {
		t.Errorf("the witness has %d terms, want %d", len(s.terms), all-1)
	}
}

// An unchanged registration is sent once.
func TestClient_RepeatsNothing(t *testing.T) {
	c, conn := connected(t)
	fenced := false
	w := c.For("remote", func() bool { return fenced })
	w.Register(term(1))
	w.Register(term(1))
	fenced = true
	w.Register(term(1))
	w.Remove(term(1))
	_ = syscall.Close(c.fd)
	var grace []string
	for raw := make([]byte, maxMessage); ; {
		n, err := conn.Read(raw)
		if err != nil {
			break
		}
		s := terms{}
		if err := s.apply(raw[:n]); err != nil {
			t.Fatal(err)
		}
		text := "removed"
		for key, r := range s {
			text = key.Cluster + " " + r.Grace.String()
		}
		grace = append(grace, text)
	}
	if want := fmt.Sprint([]string{"remote 1s", "remote 0s", "removed"}); fmt.Sprint(grace) != want {
		t.Errorf("sent %v, want %v", grace, want)
	}
}

// Without a witness, a client does nothing.
func TestClient_Nil(*testing.T) {
	var c *Client
	c.Register(term(1))
	c.For("", nil).Remove(term(1))
}

func TestTerms_Limits(t *testing.T) {
	s := terms{}
	for n := range maxTerms {
		s[lockKey{Name: fmt.Sprint(n)}] = registration{}
	}
	err := s.apply([]byte(`{"version":1,"register":{"holder":"a","name":"b","lockType":"leases"}}`))
	if err == nil {
		t.Error("no limit of the number of terms")
	}
}
