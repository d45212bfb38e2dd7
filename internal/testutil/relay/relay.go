package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Fate is the treatment of a connection. The zero Fate changes nothing.
type Fate struct {
	// Up is towards the server, Down towards the client.
	Up, Down Flow
}

// Flow is the treatment of the bytes in one direction.
type Flow struct {
	// Vanish takes them and does not pass them on.
	Vanish bool
	// Stall accepts no bytes. Bytes that were accepted before are held.
	Stall bool
	// Delay is how long each piece takes.
	Delay time.Duration
	// CutAfter, if positive, is after how many bytes the connection is reset.
	CutAfter int64
}

// Silent loses all bytes of both directions.
var Silent = Fate{Up: Flow{Vanish: true}, Down: Flow{Vanish: true}}

// Relay listens on a loopback address. Its methods may be called from any goroutine.
type Relay struct {
	listener net.Listener
	targets  []string

	mu     sync.Mutex
	next   int // of targets, for the next connection
	links  map[*link]struct{}
	coming []Fate // by target: of connections to come
	made   int
	closed bool
	all    sync.WaitGroup
}

// Listen makes a relay to the targets, host and port each, that takes them in turn, as a
// balancer does that does not know which of them are there.
func Listen(ctx context.Context, targets ...string) (*Relay, error) {
	if len(targets) == 0 {
		return nil, errors.New("a relay to nowhere: name a target")
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("relay to %v: %w", targets, err)
	}
	r := &Relay{listener: listener, targets: targets, links: map[*link]struct{}{}, coming: make([]Fate, len(targets))}
	r.all.Go(r.accept)
	return r, nil
}

// Addr is where it listens.
func (r *Relay) Addr() string { return r.listener.Addr().String() }

// Close ends all connections, and waits for that.
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

// Coming is the fate of connections that are made from now on.
func (r *Relay) Coming(f Fate) {
	for i := range r.targets {
		r.Target(i, nil, &f)
	}
}

// Present is the fate, from now on, of connections that are there.
func (r *Relay) Present(f Fate) {
	for i := range r.targets {
		r.Target(i, &f, nil)
	}
}

// Target is Present and Coming for the connections to one target; nil leaves them as they are.
func (r *Relay) Target(n int, present, coming *Fate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if coming != nil {
		r.coming[n] = *coming
	}
	if present == nil {
		return
	}
	for l := range r.links {
		if l.target == n {
			l.set(*present)
		}
	}
}

// Reset resets all connections that are there.
func (r *Relay) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l := range r.links {
		l.reset()
	}
}

// Made is how many connections were made so far, and Open how many of them are there.
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
		n := r.next % len(r.targets)
		l := &link{target: n, client: client, changed: make(chan struct{}), ended: make(chan struct{}), fate: r.coming[n]}
		r.next++
		r.made++
		if r.closed {
			l.end()
		}
		r.links[l] = struct{}{}
		r.mu.Unlock()
		r.all.Go(func() {
			l.run(r.targets[n])
			r.mu.Lock()
			delete(r.links, l)
			r.mu.Unlock()
		})
	}
}

// link is one connection.
type link struct {
	target int
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
	case <-l.ended: // while it was dialing
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

// reset has both sides get a reset.
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

// pump carries one direction. A connection that one side ends is ended for the other, unless
// no bytes pass: then the other side is not notified
func (l *link) pump(to, from net.Conn, of func(Fate) Flow) {
	buffer := make([]byte, 32<<10)
	var carried int64
	for {
		if !l.admitted(of) {
			return
		}
		n, err := from.Read(buffer)
		if err == nil && !l.admitted(of) { // it stalled while this was read
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
		if flow.Delay > 0 && !l.pause(flow.Delay) {
			return
		}
		carried += int64(n)
		if over := carried - flow.CutAfter; flow.CutAfter > 0 && over >= 0 {
			_, _ = to.Write(buffer[:max(0, int64(n)-over)])
			l.reset()
			return
		}
		if flow.CutAfter == 0 {
			carried = 0 // it counts from when it is said
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			l.end()
			return
		}
	}
}

// admitted waits while the flow is stalled; false: the connection is over.
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

func (l *link) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.ended:
		return false
	}
}
