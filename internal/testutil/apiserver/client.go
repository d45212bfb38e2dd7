package apiserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// ErrConnection is the error of a lost request or reply. client-go would send a GET again after ECONNRESET.
var ErrConnection = fmt.Errorf("connection lost: %w", syscall.ECONNABORTED)

// Lost is the part of an exchange that the network loses.
type Lost int

const (
	// Nothing is lost.
	Nothing Lost = iota
	// TheRequest is lost: the server does not execute it.
	TheRequest
	// TheReply is lost: the server executes the request.
	TheReply
)

// Fault changes the response to a request. The zero value changes nothing.
type Fault struct {
	// Before is the latency of the request. After is the latency of the reply.
	Before, After time.Duration
	// Arrives makes the request arrive even if its caller has given up.
	Arrives bool
	// Lose is the part that is lost. The client receives ErrConnection.
	Lose Lost
	// Hang makes a loss appear as silence until the context of the caller ends. Without Lose, the request is lost.
	Hang bool
	// Err is the response. If it is not an APIStatus, the client receives no response but this error.
	Err error
	// Object is the response.
	Object any
	// Header has further headers of the response.
	Header http.Header
}

// Client is the connection of one participant, with its own faults and counters.
type Client struct {
	server *Server
	name   string
	kube   func() kubernetes.Interface

	mu        sync.Mutex
	next      map[string][]Fault
	on        func(Request) Fault
	forbidden map[string]bool
	count     map[string]int
	requests  []Request
	delay     time.Duration // of watch events
	mute      bool
}

// NewClient returns a new client. The history shows its name.
func (s *Server) NewClient(name string) *Client {
	c := &Client{server: s, name: name, next: map[string][]Fault{}, forbidden: map[string]bool{}, count: map[string]int{}}
	c.kube = sync.OnceValue(func() kubernetes.Interface { return kubernetes.NewForConfigOrDie(c.Config()) })
	return c
}

// Config returns the configuration of clients of client-go.
func (c *Client) Config() *rest.Config {
	return &rest.Config{Host: "http://api.invalid", QPS: -1, WrapTransport: func(http.RoundTripper) http.RoundTripper { return c }}
}

// Kube returns a client of client-go.
func (c *Client) Kube() kubernetes.Interface { return c.kube() }

// ConfigMaps implements ConfigMapsGetter.
func (c *Client) ConfigMaps(namespace string) corev1client.ConfigMapInterface {
	return c.kube().CoreV1().ConfigMaps(namespace)
}

// Leases implements LeasesGetter.
func (c *Client) Leases(namespace string) coordinationv1client.LeaseInterface {
	return c.kube().CoordinationV1().Leases(namespace)
}

// FailNext sets the faults of the next requests of this verb, one for each request. They replace On.
func (c *Client) FailNext(verb string, faults ...Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next[verb] = append(c.next[verb], faults...)
}

// On sets the function that returns the fault of each request. nil removes it. The function may call the server and the client.
func (c *Client) On(fault func(Request) Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.on = fault
}

// Forbid makes requests with these verbs fail with 403, as missing RBAC permissions do.
func (c *Client) Forbid(verbs ...string) { c.setForbidden(true, verbs) }

// Allow reverts Forbid.
func (c *Client) Allow(verbs ...string) { c.setForbidden(false, verbs) }

func (c *Client) setForbidden(is bool, verbs []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range verbs {
		c.forbidden[v] = is
	}
}

// Requests returns the requests since its last call.
func (c *Client) Requests() []Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.requests
	c.requests = nil
	return all
}

// Counts returns the number of all requests by verb, including lost requests.
func (c *Client) Counts() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.count)
}

// received records a request and returns its fault.
func (c *Client) received(r Request) Fault {
	c.mu.Lock()
	c.requests = append(c.requests, r)
	c.count[r.Verb]++
	f, on := Fault{}, c.on
	if queue := c.next[r.Verb]; len(queue) > 0 {
		f, on = queue[0], nil
		c.next[r.Verb] = queue[1:]
	}
	forbidden := c.forbidden[r.Verb]
	c.mu.Unlock()
	if on != nil {
		f = on(r)
	}
	if forbidden {
		f.Err = apierrors.NewForbidden(r.groupResource(), r.Name, fmt.Errorf("%s cannot %s it", c.name, r.Verb))
	}
	if f.Hang && f.Lose == Nothing {
		f.Lose = TheRequest
	}
	return f
}

func (r Request) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Version.Group, Resource: r.Resource}
}

// exchange sends a request through the network and returns the reply: an object, a list or a watch.
func (c *Client) exchange(ctx context.Context, r Request, f Fault) (any, error) {
	if r.Verb == "watch" {
		f.Arrives = false // its caller has returned
	}
	if f.Lose == TheRequest {
		return nil, f.lose(ctx, f.Before)
	}
	answer, sent, err := f.deliver(ctx, func() (any, error) {
		switch {
		case f.Err != nil || f.Object != nil:
			return f.Object, f.Err
		case r.Verb == "watch":
			return c.watch(ctx, r)
		default:
			return c.server.serve(c.name, r)
		}
	})
	if !sent {
		return nil, err
	}
	lost := pass(ctx, f.After)
	if f.Lose == TheReply {
		lost = f.lose(ctx, 0)
	}
	if w, ok := answer.(*watcher); ok && lost != nil {
		w.Stop()
	}
	if lost != nil {
		return nil, lost
	}
	return answer, err
}

// deliver passes the request to the server. sent is false if the caller gave up first. With Arrives the request may arrive later.
func (f Fault) deliver(ctx context.Context, serve func() (any, error)) (answer any, sent bool, err error) {
	if !f.Arrives || f.Before <= 0 || ctx.Err() != nil {
		if gone := pass(ctx, f.Before); gone != nil {
			return nil, false, gone
		}
		answer, err = serve()
		return answer, true, err
	}
	served := make(chan struct{})
	var late any
	var failed error
	time.AfterFunc(f.Before, func() {
		late, failed = serve()
		close(served)
	})
	select {
	case <-served:
		return late, true, failed
	case <-ctx.Done():
		return nil, false, ctx.Err()
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

// pass waits until d has passed or ctx is done.
func pass(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil || d <= 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// SetWatchDelay sets the latency of watch events. Their order does not change.
func (c *Client) SetWatchDelay(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delay = d
}

func (c *Client) latency() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.delay
}

// MuteWatches keeps the watches of the client open but silent, as a stalled connection does. false delivers the pending events.
func (c *Client) MuteWatches(mute bool) {
	c.mu.Lock()
	c.mute = mute
	c.mu.Unlock()
	for _, w := range c.watches() {
		w.nudge()
	}
}

func (c *Client) muted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mute
}

// EndWatches ends the watches of the client without an error. Pending events are lost.
func (c *Client) EndWatches() { c.FailWatches(nil) }

// ExpireWatches ends the watches of the client with 410 Gone.
func (c *Client) ExpireWatches() {
	c.FailWatches(apierrors.NewResourceExpired("too old resource version"))
}

// FailWatches ends the watches of the client with an ERROR event. If why is nil, it is EndWatches.
func (c *Client) FailWatches(why apierrors.APIStatus) {
	for _, w := range c.watches() {
		w.end(why)
	}
}

// Watching returns the number of open watches of the client.
func (c *Client) Watching() int { return len(c.watches()) }

func (c *Client) watches() []*watcher {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.server.watchers), func(w *watcher) bool { return w.client != c })
}
