package electors

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/testutil/lives"
)

// Spec describes a candidate and its election.
type Spec struct {
	Namespace, Election, Identity, Revision string
	Lock                                    Lock
	Timing                                  Timing
	// PerRevision and Remote select a constructor of istiod. client-go supports neither.
	PerRevision, Remote bool
	// PeerGrace is Config.PeerGrace of incumbent.
	PeerGrace time.Duration
	// Work is the run function. It gets the client for writes, which incumbent gates. Optional.
	Work func(stop <-chan struct{}, client kubernetes.Interface) `json:"-"`
}

// elector is the common interface of the libraries. It campaigns until ctx ends and calls work when it leads.
type elector interface {
	campaign(ctx context.Context)
	client() kubernetes.Interface
}

// Candidate is a candidate of one process in one election, with the spans of its run function.
type Candidate struct {
	Spec
	lives.Recorder
	Library Library
	elector elector
	process lives.Process

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when the spans change
}

// Sees returns the last seen holder. istiod does not report it.
func (c *Candidate) Sees() (holder string, known bool) {
	if o, ok := c.elector.(interface{ Leader() (string, string) }); ok {
		holder, _ = o.Leader()
		return holder, true
	}
	return "", false
}

// Start starts to campaign.
func (c *Candidate) Start(ctx context.Context) {
	c.process.Start(ctx, func(ctx context.Context) error {
		c.elector.campaign(ctx)
		return nil
	})
}

// Stop stops the candidate and waits for it and its run function.
func (c *Candidate) Stop() {
	_ = c.process.Quit() // it has no error
	_ = c.Await(context.Background(), false)
}

// work is the run function.
func (c *Candidate) work(stop <-chan struct{}) {
	stopping, ended := c.Begin()
	c.tell()
	if c.Work != nil {
		c.Work(stop, c.elector.client())
	}
	<-stop
	stopping()
	ended()
	c.tell()
}

// tell wakes waiting goroutines.
func (c *Candidate) tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.changed)
	c.changed = make(chan struct{})
}

// Live reports whether a run function runs. After a lost term, the former one may still run.
func (c *Candidate) Live() bool {
	return slices.ContainsFunc(c.Spans(), func(s lives.Span) bool { return s.To.IsZero() })
}

// Await waits until the run function runs, or has stopped.
func (c *Candidate) Await(ctx context.Context, live bool) error {
	return c.until(ctx, func() bool { return c.Live() == live })
}

// AwaitStart waits for the first span that begins at or after since.
func (c *Candidate) AwaitStart(ctx context.Context, since time.Time) (span lives.Span, err error) {
	err = c.until(ctx, func() bool {
		spans := c.Spans()
		i := slices.IndexFunc(spans, func(s lives.Span) bool { return !s.From.Before(since) })
		if i >= 0 {
			span = spans[i]
		}
		return i >= 0
	})
	return span, err
}

// until waits until a condition of the spans holds.
func (c *Candidate) until(ctx context.Context, holds func() bool) error {
	for {
		c.mu.Lock()
		changed := c.changed
		c.mu.Unlock()
		if holds() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Overlap returns how long run functions of a and b ran concurrently between since and now.
func Overlap(a, b *Candidate, since, now time.Time) time.Duration {
	var total time.Duration
	for _, x := range a.Spans() {
		for _, y := range b.Spans() {
			total += max(0, overlap(x, y, since, now))
		}
	}
	return total
}

func overlap(x, y lives.Span, since, now time.Time) time.Duration {
	from, to := later(since, later(x.From, y.From)), now
	for _, end := range []time.Time{x.To, y.To} {
		if !end.IsZero() && end.Before(to) {
			to = end
		}
	}
	return to.Sub(from)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
