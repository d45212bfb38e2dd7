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
)

// Verb is the kind of a request.
type Verb string

const (
	Get    Verb = "get"
	Create Verb = "create"
	Update Verb = "update"
	Watch  Verb = "watch"
)

// Lost says which half of an exchange the network swallows.
type Lost int

const (
	// Nothing is lost.
	Nothing Lost = iota
	// TheRequest never arrives: nothing is committed.
	TheRequest
	// TheReply never arrives: the request was carried out all the same.
	TheReply
)

// ErrConnection is a caller's error when the network loses something at once.
var ErrConnection = fmt.Errorf("connection lost: %w", syscall.ECONNRESET)

// ErrUnavailable is an API server that is starting or going away.
var ErrUnavailable error = apierrors.NewServiceUnavailable("the apiserver is shutting down")

// Fault describes how one request fails. The zero Fault is a network without flaw
// and without delay.
type Fault struct {
	// Before is how long the request travels, After how long the reply does.
	Before, After time.Duration
	// Arrives: the request goes on travelling when its caller has given up, and is
	// carried out when it arrives.
	Arrives bool
	Lose    Lost
	// Hang: what is lost shows as silence until the caller's context ends, not as
	// ErrConnection. Alone, it loses the request.
	Hang bool
	// Err is answered in place of carrying the request out.
	Err error
}

// Client is one participant's way to the store: its own latency, faults and counters.
// It serves as ConfigMapsGetter and as LeasesGetter, for real locks of any make;
// verbs other than Get, Create, Update and Watch are not there.
type Client struct {
	store *Store
	name  string

	mu        sync.Mutex
	latency   Fault
	next      map[Verb][]Fault
	hook      func(Verb) Fault
	forbidden map[Verb]bool
	requests  map[Verb]int
	delay     time.Duration // of watch events
	mute      bool
}

// Client makes a participant; name shows in the history.
func (s *Store) Client(name string) *Client {
	c := &Client{store: s, name: name, next: map[Verb][]Fault{}, forbidden: map[Verb]bool{}, requests: map[Verb]int{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients = append(s.clients, c)
	return c
}

// SetLatency sets how long each request and each reply travels.
func (c *Client) SetLatency(before, after time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.latency = Fault{Before: before, After: after}
}

// FailNext gives the next requests of this verb these faults, one each. SetFault and
// SetLatency do not affect such a request.
func (c *Client) FailNext(verb Verb, faults ...Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next[verb] = append(c.next[verb], faults...)
}

// SetFault has hook decide on each request; nil ends that. It goes before
// SetLatency. The hook may call the store and this client.
func (c *Client) SetFault(hook func(Verb) Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hook = hook
}

// Forbid has these verbs answered 403, as missing RBAC does.
func (c *Client) Forbid(verbs ...Verb) { c.setForbidden(true, verbs) }

// Allow takes Forbid back.
func (c *Client) Allow(verbs ...Verb) { c.setForbidden(false, verbs) }

func (c *Client) setForbidden(is bool, verbs []Verb) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range verbs {
		c.forbidden[v] = is
	}
}

// Requests counts what this client has sent, by verb; lost requests too.
func (c *Client) Requests() map[Verb]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.requests)
}

// fault counts a request and picks what happens to it.
func (c *Client) fault(verb Verb) Fault {
	c.mu.Lock()
	c.requests[verb]++
	f, hook := c.latency, c.hook
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

// exchange sends a request through the network and brings back the reply.
func (c *Client) exchange(ctx context.Context, verb Verb, serve func() (Object, error)) (Object, error) {
	f := c.fault(verb)
	if verb == Watch {
		f.Arrives = false // nobody is left to read it
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

// deliver carries the request to the store. sent is false when its caller gave up
// first; with Arrives it may still get there.
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

// lose waits as a caller does from whom something was lost.
func (f Fault) lose(ctx context.Context, travel time.Duration) error {
	if f.Hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return errors.Join(pass(ctx, travel), ErrConnection)
}
