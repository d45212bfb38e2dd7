package relay

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo is a server that sends back the received bytes and records them.
func echo(t *testing.T) (addr string, got chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	got = make(chan string, 100)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				buffer := make([]byte, 100)
				for {
					n, err := conn.Read(buffer)
					if err != nil {
						return
					}
					got <- string(buffer[:n])
					if _, err := conn.Write(buffer[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return listener.Addr().String(), got
}

func connect(t *testing.T, r *Relay) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func listen(t *testing.T, targets ...string) *Relay {
	t.Helper()
	r, err := Listen(t.Context(), targets...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func write(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

// read returns the bytes that arrive within a short time, or "".
func read(t *testing.T, conn net.Conn, within time.Duration) (string, error) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 100)
	n, err := conn.Read(buffer)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return string(buffer[:n]), err
}

const (
	ample = 10 * time.Second
	brief = 50 * time.Millisecond // nothing is expected; more time would find no more than a broken relay
)

func passes(t *testing.T, what string, conn net.Conn) {
	t.Helper()
	write(t, conn, "hello")
	if text, err := read(t, conn, ample); text != "hello" || err != nil {
		t.Errorf("%s: %q, %v", what, text, err)
	}
}

// arrives waits for something to arrive at the server.
func arrives(t *testing.T, got <-chan string) {
	t.Helper()
	select {
	case <-got:
	case <-time.After(ample):
		t.Fatalf("nothing has arrived after %v", ample)
	}
}

func TestRelay_Fates(t *testing.T) {
	for name, c := range map[string]struct {
		fate            Fate
		arrives, echoed bool
	}{
		"silent":       {Silent, false, false},
		"nothing up":   {Fate{Up: Flow{Vanish: true}}, false, false},
		"nothing down": {Fate{Down: Flow{Vanish: true}}, true, false},
		"stalled up":   {Fate{Up: Flow{Stall: true}}, false, false},
		"slow":         {Fate{Up: Flow{Delay: time.Millisecond}, Down: Flow{Delay: time.Millisecond}}, true, true},
	} {
		for _, present := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				addr, got := echo(t)
				r := listen(t, addr)
				conn, other := connect(t, r), net.Conn(nil)
				passes(t, "before", conn)
				arrives(t, got)
				if present {
					r.Present(c.fate)
					other = connect(t, r)
				} else {
					r.Coming(c.fate)
					conn, other = connect(t, r), conn
				}
				passes(t, "another", other)
				arrives(t, got)
				write(t, conn, "hello")
				if c.arrives {
					arrives(t, got)
				}
				within := brief
				if c.echoed {
					within = ample
				}
				if text, err := read(t, conn, within); (text == "hello") != c.echoed || err != nil {
					t.Errorf("%q, %v came back", text, err)
				}
				if len(got) > 0 {
					t.Error("it arrived")
				}
				r.Present(Fate{})
				if name == "stalled up" {
					if text, err := read(t, conn, ample); text != "hello" || err != nil {
						t.Errorf("what was stalled: %q, %v", text, err)
					}
				} else {
					passes(t, "after", conn)
				}
			})
		}
	}
}

func TestRelay_CutsAndResets(t *testing.T) {
	addr, _ := echo(t)
	r := listen(t, addr)
	conn := connect(t, r)
	passes(t, "before", conn)
	r.Present(Fate{Down: Flow{CutAfter: 3}})
	write(t, conn, "hello")
	if text, err := read(t, conn, ample); text != "hel" && err == nil {
		t.Errorf("%q came before the cut: %v", text, err)
	}
	if _, err := read(t, conn, ample); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the cut ended with %v", err)
	}
	conn = connect(t, r)
	passes(t, "a new one", conn)
	r.Reset()
	if _, err := read(t, conn, ample); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the reset ended with %v", err)
	}
}

func TestRelay_Targets(t *testing.T) {
	first, atFirst := echo(t)
	second, atSecond := echo(t)
	r := listen(t, first, second)
	a, b := connect(t, r), connect(t, r)
	passes(t, "first", a)
	passes(t, "second", b)
	if len(atFirst) != 1 || len(atSecond) != 1 {
		t.Errorf("%d and %d", len(atFirst), len(atSecond))
	}
	r.Target(0, &Silent, &Silent)
	passes(t, "the other target", b)
	write(t, a, "hello")
	if text, err := read(t, a, brief); text != "" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if r.Made() != 2 {
		t.Errorf("%d connections", r.Made())
	}
}
