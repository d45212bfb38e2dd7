package witness

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv("MODE"); mode != "" {
		supervised(mode)
	}
	goleak.VerifyTestMain(m)
}

// connected returns a client, and its session at the witness.
func connected(t *testing.T) (*Client, *session) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	harness.Must(t, err)
	file := os.NewFile(uintptr(fds[1]), "witness")
	defer file.Close()
	conn, err := net.FileConn(file)
	harness.Must(t, err)
	c := newClient("", fds[0])
	t.Cleanup(func() {
		c.close()
		_ = conn.Close()
	})
	all := &sessions{}
	s, err := all.add(conn.(*net.UnixConn), 0)
	harness.Must(t, err)
	return c, s
}

// close ends the connection, like the end of the process.
func (c *Client) close() {
	if c.fd >= 0 {
		_ = syscall.Close(c.fd)
		c.fd = -1
	}
}

func term(n int) k8sleaderelection.WitnessedTerm {
	return k8sleaderelection.WitnessedTerm{LockType: "leases", Namespace: "n", Name: fmt.Sprint("lock-", n), Holder: "a", Transitions: n}
}

// A witness that does not read never blocks a leader. Later renewals send the missing terms.
func TestClient_SlowWitness(t *testing.T) {
	c, s := connected(t)
	const all = 1000
	for n := range all {
		c.Register(term(n))
	}
	c.Remove(term(0))
	if len(c.unsent) == 0 {
		t.Fatal("all terms fit into the socket: the test shows nothing")
	}
	ended := make(chan bool)
	go func() { ended <- s.receive(Options{}.withDefaults()) }()
	for len(c.unsent) > 0 {
		c.Register(term(1))
	}
	c.close()
	if !<-ended || len(s.terms) != all-1 {
		t.Errorf("the witness has %d terms, want %d", len(s.terms), all-1)
	}
}

// The parent has not read the messages when the child ends, and another process has inherited the socket.
func TestChild_LastMessages(t *testing.T) {
	c, s := connected(t)
	c.Register(term(1))
	c.Register(term(2))
	c.Remove(term(1))
	parent := child{session: s, received: make(chan struct{})}
	close(parent.received)
	parent.lastMessages()
	if _, kept := parent.session.terms[registration{WitnessedTerm: term(2)}.key()]; !kept || len(parent.session.terms) != 1 {
		t.Errorf("terms %v, want lock-2", parent.session.terms)
	}
}

// An unchanged registration is sent once.
func TestClient_RepeatsNothing(t *testing.T) {
	c, connection := connected(t)
	fenced := false
	w := c.For("remote", func() bool { return fenced })
	w.Register(term(1))
	w.Register(term(1))
	fenced = true
	w.Register(term(1))
	w.Remove(term(1))
	c.close()
	var grace []string
	for raw := make([]byte, maxMessage); ; {
		n, err := connection.conn.Read(raw)
		if err != nil {
			break
		}
		s := terms{}
		harness.Must(t, s.apply(raw[:n], connection.accepts))
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

func TestSession_Identity(t *testing.T) {
	s := session{of: &sessions{identity: "a"}}
	for holder, accepted := range map[string]bool{"a": true, "a.lock-1": true, "a.lock-2": false, "b": false, "ab": false, "b.lock-1": false} {
		r := registration{WitnessedTerm: term(1)}
		r.Holder = holder
		if err := s.accepts(r); (err == nil) != accepted {
			t.Errorf("holder %s: %v", holder, err)
		}
	}
}

// A session has no terms after a message that the witness rejects, and does not accept others.
func TestSession_RejectedMessage(t *testing.T) {
	c, s := connected(t)
	c.Register(term(1))
	harness.Must(t, syscall.Sendto(c.fd, []byte("invalid"), 0, nil))
	c.Register(term(2))
	c.close()
	if !s.receive(Options{}.withDefaults()) || len(s.terms) > 0 {
		t.Errorf("the session has the terms %v, want none", s.terms)
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
	err := s.apply([]byte(`{"version":1,"register":{"holder":"a","name":"b","lockType":"leases"}}`), nil)
	if err == nil {
		t.Error("no limit of the number of terms")
	}
}

// blockedLog is a Logger that does not return until it is closed.
type blockedLog struct {
	slog.Handler
	called, closed chan struct{}
}

func (b blockedLog) Enabled(context.Context, slog.Level) bool {
	close(b.called)
	<-b.closed
	return false
}

// The loop of an elector calls Register. A Logger that does not return does not delay it.
func TestClient_BlockedLogger(t *testing.T) {
	log := blockedLog{slog.DiscardHandler, make(chan struct{}), make(chan struct{})}
	c := Dial(filepath.Join(t.TempDir(), "missing"), slog.New(log))
	c.Register(term(1))
	<-log.called
	c.Register(term(2))
	close(log.closed)
	if !c.hooks.Wait(harness.Patience) {
		t.Error("the failure is not logged")
	}
}
