package electors

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
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
	if c.Work != nil {
		c.Work(stop, c.elector.client())
	}
	<-stop
	stopping()
	ended()
}

// Live reports whether a run function runs. After a lost term, the former one may still run.
func (c *Candidate) Live() bool {
	return slices.ContainsFunc(c.Spans(), func(s lives.Span) bool { return s.To.IsZero() })
}

// Await waits until the run function runs, or has stopped.
func (c *Candidate) Await(ctx context.Context, live bool) error {
	return poll(ctx, func() bool { return c.Live() == live })
}

// AwaitStart waits for the first span that begins at or after since.
func (c *Candidate) AwaitStart(ctx context.Context, since time.Time) (span lives.Span, err error) {
	err = poll(ctx, func() bool {
		spans := c.Spans()
		i := slices.IndexFunc(spans, func(s lives.Span) bool { return !s.From.Before(since) })
		if i >= 0 {
			span = spans[i]
		}
		return i >= 0
	})
	return span, err
}

func poll(ctx context.Context, holds func() bool) error {
	return wait.PollUntilContextCancel(ctx, 5*time.Millisecond, true, func(context.Context) (bool, error) { return holds(), nil })
}

// Overlap returns how long run functions of last ran concurrently with those of next that began at or after since.
func Overlap(last, next *Candidate, since time.Time) time.Duration {
	var total time.Duration
	for _, x := range next.Spans() {
		for _, y := range last.Spans() {
			if !x.From.Before(since) {
				total += max(0, lives.Overlap(x, y, time.Now()))
			}
		}
	}
	return total
}
