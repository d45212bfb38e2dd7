package electors

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
)

// Spec describes a candidate and its election.
type Spec struct {
	Namespace, Election, Identity, Revision string
	Lock                                    Lock
	Timing                                  Timing
	// PerRevision and Remote select a constructor of istiod. client-go supports neither.
	PerRevision, Remote bool
	// Drain is the time that the run function takes to return.
	Drain time.Duration
	// PeerGrace is Config.PeerGrace of incumbent.
	PeerGrace time.Duration
	// Work is the run function. It gets the client for writes, which incumbent gates. Optional.
	Work func(stop <-chan struct{}, client kubernetes.Interface) `json:"-"`
}

// Span is one run of a run function. Told is the time of its cancellation. Told and To are zero until then.
type Span struct{ From, Told, To time.Time }

// elector is the common interface of the libraries. It campaigns until ctx ends and calls work when it leads.
type elector interface {
	campaign(ctx context.Context)
	client() kubernetes.Interface
}

// Candidate is a candidate of one process in one election.
type Candidate struct {
	Spec
	Library Library
	elector elector

	mu      sync.Mutex
	spans   []Span
	changed chan struct{} // closed and replaced when spans change
	cancel  context.CancelFunc
	ended   chan struct{}
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
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.cancel, c.ended = cancel, make(chan struct{})
	go func() {
		defer close(c.ended)
		c.elector.campaign(ctx)
	}()
}

// Leave stops the candidate without waiting.
func (c *Candidate) Leave() { c.cancel() }

// Stop stops the candidate and waits for it and its run function.
func (c *Candidate) Stop() {
	c.cancel()
	<-c.ended
	for {
		live, changed := c.look()
		if !live {
			return
		}
		<-changed
	}
}

// work is the run function.
func (c *Candidate) work(stop <-chan struct{}) {
	c.mu.Lock()
	i := len(c.spans)
	c.spans = append(c.spans, Span{From: time.Now()})
	c.tell()
	c.mu.Unlock()
	if c.Work != nil {
		c.Work(stop, c.elector.client())
	}
	<-stop
	c.note(func() { c.spans[i].Told = time.Now() })
	if c.Drain > 0 {
		drained := time.NewTimer(c.Drain)
		<-drained.C
	}
	c.note(func() { c.spans[i].To = time.Now() })
}

func (c *Candidate) note(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	c.tell()
}

// tell wakes waiting goroutines. The caller holds the mutex.
func (c *Candidate) tell() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *Candidate) look() (live bool, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.spans, func(s Span) bool { return s.To.IsZero() }), c.changed
}

// Spans returns the spans so far.
func (c *Candidate) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Last returns the newest span, or the zero Span.
func (c *Candidate) Last() Span {
	spans := c.Spans()
	if len(spans) == 0 {
		return Span{}
	}
	return spans[len(spans)-1]
}

// Live reports whether a run function runs.
func (c *Candidate) Live() bool {
	live, _ := c.look()
	return live
}

// Await waits until the run function runs, or has stopped.
func (c *Candidate) Await(ctx context.Context, live bool) error {
	for {
		now, changed := c.look()
		if now == live {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// AwaitStart waits for the first span that begins at or after since.
func (c *Candidate) AwaitStart(ctx context.Context, since time.Time) (Span, error) {
	for {
		c.mu.Lock()
		spans, changed := slices.Clone(c.spans), c.changed
		c.mu.Unlock()
		for _, s := range spans {
			if !s.From.Before(since) {
				return s, nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Span{}, ctx.Err()
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

func overlap(x, y Span, since, now time.Time) time.Duration {
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
