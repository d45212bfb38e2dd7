package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// Fate is the treatment of a connection. The zero Fate changes nothing.
type Fate struct {
	// Up is towards the server, Down towards the client.
	Up, Down Flow
}

// Flow is the treatment of the bytes in one direction.
type Flow struct {
	// Vanish discards the bytes.
	Vanish bool
	// Stall reads no bytes. Bytes that were read before are held.
	Stall bool
	// Late delays the bytes. It must not change during a connection.
	Late time.Duration
	// CutAfter is the number of bytes after which the connection is reset. If 0, it is not reset.
	CutAfter int64
}

// Silent discards all bytes of both directions. Stalled holds them, so that they arrive later, as with TCP.
var (
	Silent  = Fate{Up: Flow{Vanish: true}, Down: Flow{Vanish: true}}
	Stalled = Fate{Up: Flow{Stall: true}, Down: Flow{Stall: true}}
)

// Relay listens on a loopback address. Its methods are safe for concurrent use.
type Relay struct {
	listener net.Listener
	targets  []string

	mu     sync.Mutex
	links  map[*link]struct{}
	coming Fate
	made   int
	closed bool
	all    sync.WaitGroup
}

// Insert starts a relay to the API server of a configuration, and makes the configuration use it. With further servers of the same
// cluster, each connection uses the next server.
func Insert(ctx context.Context, config *rest.Config, further ...string) (*Relay, error) {
	r := &Relay{links: map[*link]struct{}{}}
	for _, address := range append([]string{config.Host}, further...) {
		server, err := url.Parse(address)
		if err != nil {
			return nil, err
		}
		config.ServerName = server.Hostname()
		r.targets = append(r.targets, server.Host)
	}
	var err error
	if r.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("relay to %v: %w", r.targets, err)
	}
	r.all.Go(r.accept)
	config.Host = "https://" + r.Addr()
	return r, nil
}

// For returns a relay for the configuration that is closed when the test ends.
func For(t testing.TB, config *rest.Config) *Relay {
	t.Helper()
	r, err := Insert(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// Addr returns the listen address.
func (r *Relay) Addr() string { return r.listener.Addr().String() }

// Close returns after all connections have ended.
func (r *Relay) Close() error {
	r.mu.Lock()
	r.closed = true
	for l := range r.links {
		l.end()
	}
	r.mu.Unlock()
	err := r.listener.Close()
	r.all.Wait()
	return err
}

// All sets the fate of existing and new connections.
func (r *Relay) All(f Fate) {
	r.Coming(f)
	r.Present(f)
}

// Coming sets the fate of new connections.
func (r *Relay) Coming(f Fate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.coming = f
}

// Present sets the fate of existing connections.
func (r *Relay) Present(f Fate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l := range r.links {
		l.set(f)
	}
}

// Reset resets all existing connections.
func (r *Relay) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l := range r.links {
		l.reset()
	}
}

// Open returns the number of connections that exist.
func (r *Relay) Open() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.links)
}

// Made returns the number of connections so far.
func (r *Relay) Made() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.made
}

func (r *Relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		target := r.targets[r.made%len(r.targets)]
		l := &link{client: client, changed: make(chan struct{}), ended: make(chan struct{}), fate: r.coming}
		r.made++
		if r.closed {
			l.end()
		}
		r.links[l] = struct{}{}
		r.mu.Unlock()
		r.all.Go(func() {
			l.run(target)
			r.mu.Lock()
			delete(r.links, l)
			r.mu.Unlock()
		})
	}
}

// link is one connection.
type link struct {
	client net.Conn
	ended  chan struct{}
	once   sync.Once

	mu      sync.Mutex
	server  net.Conn
	fate    Fate
	changed chan struct{} // closed and replaced when the fate changes
}

func (l *link) run(target string) {
	defer l.end()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	l.mu.Lock()
	l.server = server
	l.mu.Unlock()
	select {
	case <-l.ended: // during the dial
		server.Close()
		return
	default:
	}
	var both sync.WaitGroup
	both.Go(func() { l.pump(server, l.client, func(f Fate) Flow { return f.Up }) })
	both.Go(func() { l.pump(l.client, server, func(f Fate) Flow { return f.Down }) })
	both.Wait()
}

// end closes both sides.
func (l *link) end() {
	l.once.Do(func() { close(l.ended) })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.client.Close()
	if l.server != nil {
		l.server.Close()
	}
}

// reset resets both sides.
func (l *link) reset() {
	l.mu.Lock()
	for _, conn := range []net.Conn{l.client, l.server} {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
	}
	l.mu.Unlock()
	l.end()
}

func (l *link) set(f Fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fate = f
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *link) flow(of func(Fate) Flow) (Flow, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return of(l.fate), l.changed
}

// pump copies one direction. If one side ends the connection, the other side ends too. If bytes vanish, the other side
// is not notified.
func (l *link) pump(to, from net.Conn, of func(Fate) Flow) {
	buffer := make([]byte, 32<<10)
	var carried int64
	if flow, _ := l.flow(of); flow.Late > 0 {
		late := make(chan chunk, maxLate)
		var delivery sync.WaitGroup
		defer delivery.Wait()
		defer close(late)
		server := to
		delivery.Go(func() { l.deliver(server, late) })
		to = delayed{to, late, flow.Late}
	}
	for {
		if !l.admitted(of) {
			return
		}
		n, err := from.Read(buffer)
		if err == nil && !l.admitted(of) { // it stalled during the read
			return
		}
		flow, _ := l.flow(of)
		if err != nil {
			if !flow.Vanish || !errors.Is(err, io.EOF) {
				l.end()
			}
			return
		}
		if flow.Vanish {
			continue
		}
		carried += int64(n)
		if over := carried - flow.CutAfter; flow.CutAfter > 0 && over >= 0 {
			_, _ = to.Write(buffer[:max(0, int64(n)-over)])
			l.reset()
			return
		}
		if flow.CutAfter == 0 {
			carried = 0 // only bytes after Present or Coming count
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			l.end()
			return
		}
	}
}

// maxLate is the number of chunks that one direction of a connection holds.
const maxLate = 10_000

// chunk is a part of the bytes of a direction, with the time at which it arrives.
type chunk struct {
	at    time.Time
	bytes []byte
}

// delayed is a connection whose bytes are late.
type delayed struct {
	net.Conn
	late chan<- chunk
	by   time.Duration
}

func (d delayed) Write(p []byte) (int, error) {
	d.late <- chunk{time.Now().Add(d.by), bytes.Clone(p)} //nolint:forbidigo // a delay is what it makes
	return len(p), nil
}

// deliver writes late chunks until the connection has ended.
func (l *link) deliver(to net.Conn, late <-chan chunk) {
	for c := range late {
		timer := time.NewTimer(time.Until(c.at)) //nolint:forbidigo // a delay is what it makes
		select {
		case <-timer.C:
		case <-l.ended:
			timer.Stop()
			continue
		}
		if _, err := to.Write(c.bytes); err != nil {
			l.end()
		}
	}
}

// admitted waits while the flow is stalled. It returns false if the connection has ended.
func (l *link) admitted(of func(Fate) Flow) bool {
	for {
		flow, changed := l.flow(of)
		if !flow.Stall {
			return true
		}
		select {
		case <-changed:
		case <-l.ended:
			return false
		}
	}
}
