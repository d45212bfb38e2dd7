package electors

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Spec says which candidate of which election.
type Spec struct {
	Namespace, Election, Identity, Revision string
	Lock                                    Lock
	Timing                                  Timing
	// PerRevision and Remote are as in istiod's constructors; client-go knows neither.
	PerRevision, Remote bool
	// Drain is how long the run function takes to return.
	Drain time.Duration
	// PeerGrace is as in incumbent's Config.
	PeerGrace time.Duration
}

// Span is the life of a run function. A zero Told or To is still to come.
type Span struct{ From, Told, To time.Time }

// elector is what the libraries have in common: it campaigns until ctx ends, and calls
// work whenever it leads.
type elector interface {
	campaign(ctx context.Context)
}

// Candidate is one process's part in one election.
type Candidate struct {
	Spec
	Library Library
	elector elector

	mu      sync.Mutex
	spans   []Span
	changed chan struct{} // closed when spans change, and replaced
	cancel  context.CancelFunc
	ended   chan struct{}
}

// Sees is who leads as this candidate has last seen it; istiod does not tell.
func (c *Candidate) Sees() (holder string, known bool) {
	if o, ok := c.elector.(interface{ Leader() (string, string) }); ok {
		holder, _ = o.Leader()
		return holder, true
	}
	return "", false
}

// Start begins to campaign. Stop ends that.
func (c *Candidate) Start(ctx context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c.cancel, c.ended = cancel, make(chan struct{})
	go func() {
		defer close(c.ended)
		c.elector.campaign(ctx)
	}()
}

// Leave tells the candidate to stop, and does not wait.
func (c *Candidate) Leave() { c.cancel() }

// Stop tells the candidate to stop, and returns when it has, its run function included.
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

// tell wakes who waits. The caller has the lock.
func (c *Candidate) tell() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *Candidate) look() (live bool, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.spans, func(s Span) bool { return s.To.IsZero() }), c.changed
}

// Spans are the lives of the run function so far.
func (c *Candidate) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Last is the newest span; the zero Span if there was none.
func (c *Candidate) Last() Span {
	spans := c.Spans()
	if len(spans) == 0 {
		return Span{}
	}
	return spans[len(spans)-1]
}

// Live reports whether a run function is alive.
func (c *Candidate) Live() bool {
	live, _ := c.look()
	return live
}

// Await waits until the run function is alive, or until it is not.
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

// Overlap is for how long run functions of a and b were alive at once, from since to now.
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
