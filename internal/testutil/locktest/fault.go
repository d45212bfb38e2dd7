package locktest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"incumbent.dev/incumbent/internal/apirequest"
)

// Verb is the verb of a request.
type Verb string

const (
	// The verbs that locks use.
	Get    Verb = "get"
	Create Verb = "create"
	Update Verb = "update"
	Watch  Verb = "watch"
)

// Lost is the part of an exchange that the network loses.
type Lost int

const (
	// Nothing is lost.
	Nothing Lost = iota
	// TheRequest is lost: nothing is stored.
	TheRequest
	// TheReply is lost: the write is stored.
	TheReply
)

// ErrConnection is the error for a lost request or reply, if Hang is false.
var ErrConnection = fmt.Errorf("connection lost: %w", syscall.ECONNRESET)

// ErrUnavailable is the error of an API server that starts or stops.
var ErrUnavailable error = apierrors.NewServiceUnavailable("the apiserver is shutting down")

// Fault describes how one request fails. The zero Fault is a perfect network without latency.
type Fault struct {
	// Before is the latency of the request. After is the latency of the reply.
	Before, After time.Duration
	// Arrives makes the request arrive even if its caller has given up.
	Arrives bool
	// Lose is the part that is lost.
	Lose Lost
	// Hang makes a loss appear as silence until the context of the caller ends. Without Lose, the request is lost.
	Hang bool
	// Err is returned instead of executing the request.
	Err error
}

// Client is the connection of one participant to the store, with its own latency, faults and counters. It
// implements ConfigMapsGetter and LeasesGetter with the verbs Get, Create, Update and Watch.
type Client struct {
	store *Store
	name  string

	mu        sync.Mutex
	next      map[Verb][]Fault
	hook      func(Verb) Fault
	forbidden map[Verb]bool
	requests  map[Verb]int
	delay     time.Duration // of watch events
	mute      bool
}

// Client returns a new client. The history shows its name.
func (s *Store) Client(name string) *Client {
	c := &Client{store: s, name: name, next: map[Verb][]Fault{}, forbidden: map[Verb]bool{}, requests: map[Verb]int{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients = append(s.clients, c)
	return c
}

// FailNext sets the faults of the next requests of this verb, one for each request. They replace SetFault.
func (c *Client) FailNext(verb Verb, faults ...Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next[verb] = append(c.next[verb], faults...)
}

// SetFault sets a function that returns the fault of each request. nil removes it. hook may call the store and the
// client.
func (c *Client) SetFault(hook func(Verb) Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hook = hook
}

// Forbid makes requests with these verbs fail with 403, as missing RBAC permissions do.
func (c *Client) Forbid(verbs ...Verb) { c.setForbidden(true, verbs) }

// Allow reverts Forbid.
func (c *Client) Allow(verbs ...Verb) { c.setForbidden(false, verbs) }

func (c *Client) setForbidden(is bool, verbs []Verb) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range verbs {
		c.forbidden[v] = is
	}
}

// Requests returns the number of requests by verb, including lost requests.
func (c *Client) Requests() map[Verb]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.requests)
}

// fault counts a request and returns its fault.
func (c *Client) fault(verb Verb) Fault {
	c.mu.Lock()
	c.requests[verb]++
	f, hook := Fault{}, c.hook
	if queue := c.next[verb]; len(queue) > 0 {
		f, hook = queue[0], nil
		c.next[verb] = queue[1:]
	}
	forbidden := c.forbidden[verb]
	c.mu.Unlock()
	if hook != nil {
		f = hook(verb)
	}
	if forbidden {
		f.Err = apierrors.NewForbidden(c.store.resource(), Name, fmt.Errorf("%s cannot %s it", c.name, verb))
	}
	if f.Hang && f.Lose == Nothing {
		f.Lose = TheRequest
	}
	return f
}

// exchange sends a request through the network and returns the reply.
func (c *Client) exchange(ctx context.Context, verb Verb, serve func() (Object, error)) (Object, error) {
	f := c.fault(verb)
	if verb == Watch {
		f.Arrives = false // its caller has returned
	}
	if f.Lose == TheRequest {
		return nil, f.lose(ctx, f.Before)
	}
	obj, err, sent := f.deliver(ctx, serve)
	if !sent {
		return nil, err
	}
	if f.Lose == TheReply {
		return nil, f.lose(ctx, f.After)
	}
	if gone := pass(ctx, f.After); gone != nil {
		return nil, gone
	}
	return obj, err
}

// deliver passes the request to the store. sent is false if the caller gave up first. With Arrives the request may
// arrive later.
func (f Fault) deliver(ctx context.Context, serve func() (Object, error)) (obj Object, err error, sent bool) {
	if f.Err != nil {
		serve = func() (Object, error) { return nil, f.Err }
	}
	if !f.Arrives || f.Before <= 0 || ctx.Err() != nil {
		if gone := pass(ctx, f.Before); gone != nil {
			return nil, gone, false
		}
		obj, err = serve()
		return obj, err, true
	}
	type reply struct {
		obj Object
		err error
	}
	served := make(chan reply, 1)
	time.AfterFunc(f.Before, func() {
		obj, err := serve()
		served <- reply{obj, err}
	})
	select {
	case r := <-served:
		return r.obj, r.err, true
	case <-ctx.Done():
		return nil, ctx.Err(), false
	}
}

// lose returns the error of a caller that receives no reply.
func (f Fault) lose(ctx context.Context, travel time.Duration) error {
	if f.Hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return errors.Join(pass(ctx, travel), ErrConnection)
}

// pass waits until d has passed or ctx is done. If ctx is done already, it returns immediately.
func pass(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil || d <= 0 {
		return ctx.Err()
	}
	return apirequest.Pause(ctx, d)
}
