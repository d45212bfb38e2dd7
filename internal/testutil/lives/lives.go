package lives

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"
)

// Span is one run of a run function. To is zero while it runs. Told is the time at which its context was cancelled, or
// zero.
type Span struct{ From, Told, To time.Time }

// Spans are the spans of one candidate in order.
type Spans []Span

// Last returns the newest span, or the zero Span.
func (s Spans) Last() Span {
	if len(s) == 0 {
		return Span{}
	}
	return s[len(s)-1]
}

// Live reports whether the newest span has not ended.
func (s Spans) Live() bool { return len(s) > 0 && s.Last().To.IsZero() }

// Recorder records the spans of a run function. Its zero value is empty.
type Recorder struct {
	mu    sync.Mutex
	spans Spans
}

// Begin records the start. stopping records the cancellation, ended the end.
func (r *Recorder) Begin() (stopping, ended func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := len(r.spans)
	r.spans = append(r.spans, Span{From: time.Now()})
	note := func(in func(*Span) *time.Time) func() {
		return func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			*in(&r.spans[i]) = time.Now()
		}
	}
	return note(func(s *Span) *time.Time { return &s.Told }), note(func(s *Span) *time.Time { return &s.To })
}

// Spans returns the spans so far.
func (r *Recorder) Spans() Spans {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.spans)
}

// Last returns Spans().Last().
func (r *Recorder) Last() Span { return r.Spans().Last() }

// Live returns Spans().Live().
func (r *Recorder) Live() bool { return r.Spans().Live() }

// Candidate is a candidate whose spans are compared.
type Candidate interface {
	Lives() (name string, spans Spans)
}

// Apart fails the test if run functions of two candidates ran concurrently.
func Apart[C Candidate](t testing.TB, all ...C) {
	t.Helper()
	now := time.Now()
	for i, a := range all {
		name, some := a.Lives()
		for _, b := range all[i+1:] {
			another, others := b.Lives()
			for _, x := range some {
				for _, y := range others {
					if d := Overlap(x, y, now); d > 0 {
						t.Errorf("%s and %s ran concurrently for %v: since %v and since %v", name, another, d, x.From, y.From)
					}
				}
			}
		}
	}
}

// Overlap returns the length of the overlap, or a value of at most zero.
func Overlap(x, y Span, now time.Time) time.Duration {
	end := func(s Span) time.Time {
		if s.To.IsZero() {
			return now
		}
		return s.To
	}
	from, to := x.From, end(x)
	if y.From.After(from) {
		from = y.From
	}
	if end(y).Before(to) {
		to = end(y)
	}
	return to.Sub(from)
}

// Process runs a candidate once.
type Process struct {
	cancel context.CancelFunc
	done   chan error
}

// Start runs the candidate until Cancel or Quit, even if ctx ends.
func (p *Process) Start(ctx context.Context, run func(context.Context) error) {
	ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.done = make(chan error, 1)
	go func() { p.done <- run(ctx) }()
}

// Cancel cancels the candidate.
func (p *Process) Cancel() { p.cancel() }

// Quit cancels the candidate and returns its error. It may be called repeatedly.
func (p *Process) Quit() error {
	p.cancel()
	err := <-p.done
	p.done <- err
	return err
}

// Stop cancels the candidate and fails the test if it ended with an error.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	if err := p.Quit(); err != nil {
		t.Error(err)
	}
}
