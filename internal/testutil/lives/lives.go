package lives

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"
)

// Span is the life of a run function. The zero To means that it goes on; Told is when it was told to stop, and zero until then.
type Span struct{ From, Told, To time.Time }

// Spans are those of one candidate, in their order.
type Spans []Span

// Last is the newest, the zero Span where there is none.
func (s Spans) Last() Span {
	if len(s) == 0 {
		return Span{}
	}
	return s[len(s)-1]
}

// Live reports whether the newest goes on.
func (s Spans) Live() bool { return len(s) > 0 && s.Last().To.IsZero() }

// Draining reports whether the newest goes on although the run function was told to stop.
func (s Spans) Draining() bool { return s.Live() && !s.Last().Told.IsZero() }

// Recorder records the Spans of a run function. The zero value has none.
type Recorder struct {
	mu    sync.Mutex
	spans Spans
}

// Recorded is a Recorder that has these.
func Recorded(spans ...Span) *Recorder { return &Recorder{spans: spans} }

// Begin notes that the function runs. It returns what notes that it was told to stop, and that it has ended.
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

// Spans are all so far.
func (r *Recorder) Spans() Spans {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.spans)
}

// Last is Spans.Last.
func (r *Recorder) Last() Span { return r.Spans().Last() }

// Live is Spans.Live.
func (r *Recorder) Live() bool { return r.Spans().Live() }

// Draining is Spans.Draining.
func (r *Recorder) Draining() bool { return r.Spans().Draining() }

// Candidate is one whose Spans are compared.
type Candidate interface {
	Lives() (name string, spans Spans)
}

// Apart fails the test when run functions of two candidates ran at once. It returns how many Spans it compared.
func Apart[C Candidate](t testing.TB, all ...C) (spans int) {
	t.Helper()
	now := time.Now()
	for i, a := range all {
		name, some := a.Lives()
		spans += len(some)
		for _, b := range all[i+1:] {
			another, others := b.Lives()
			for _, x := range some {
				for _, y := range others {
					if d := overlap(x, y, now); d > 0 {
						t.Errorf("%s and %s ran at once for %v: since %v and since %v", name, another, d, x.From, y.From)
					}
				}
			}
		}
	}
	return spans
}

// overlap is for how long both went on, zero or less if never.
func overlap(x, y Span, now time.Time) time.Duration {
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

// Start runs it until Cancel or Quit, whatever becomes of ctx.
func (p *Process) Start(ctx context.Context, run func(context.Context) error) {
	ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.done = make(chan error, 1)
	go func() { p.done <- run(ctx) }()
}

// Cancel tells it to end.
func (p *Process) Cancel() { p.cancel() }

// Quit tells it to end, and returns what it has ended with, as often as it is called.
func (p *Process) Quit() error {
	p.cancel()
	err := <-p.done
	p.done <- err
	return err
}
