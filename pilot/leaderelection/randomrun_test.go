package leaderelection

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// playRun is a seed's choices and what came of them, whatever world it is played in.
type playRun struct {
	Mix    mix
	Began  time.Time
	Orders sync.WaitGroup // what an operator, or a late watch, still does
	// Untouched is when a process may start again: before, it would not know what was there.
	Untouched time.Time
	serial    int

	Mu         sync.Mutex // guards the rest, and what is as much the world's
	Rand       *rand.Rand
	Calm       bool // nothing goes wrong any more
	Default    string
	Ordered    int
	Violations []string
	log        strings.Builder
}

// newPlayRun begins the run of a seed.
func newPlayRun(seed uint64) *playRun {
	return &playRun{Mix: mixes[seed%uint64(len(mixes))], Began: time.Now(), Rand: rand.New(rand.NewPCG(seed, 17)), Default: playRevisions[0]}
}

// numberFrom is what a variable of the environment says, such as how many seeds are played.
func numberFrom(t testing.TB, getenv func(string) string, variable string, otherwise int) int {
	t.Helper()
	text := getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		t.Fatalf("%s=%s: give a number", variable, text)
	}
	return n
}

// Locked has f done under Mu.
func (r *playRun) Locked(f func()) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	f()
}

// Intn is a number below n.
func (r *playRun) Intn(n int) (chosen int) {
	r.Locked(func() { chosen = r.Rand.IntN(n) })
	return chosen
}

// Within is a time shorter than most.
func (r *playRun) Within(most time.Duration) time.Duration { return time.Duration(r.Intn(int(most))) }

// Wait waits for a time shorter than most.
func (r *playRun) Wait(most time.Duration) { <-time.After(r.Within(most)) }

// AwaitUntouched waits until a process that starts is not one that promises exclude: one that has
// never seen a record whose holder may still act.
func (r *playRun) AwaitUntouched() {
	if d := time.Until(r.Untouched); d > 0 {
		<-time.After(d)
	}
}

// NewName is a name that no process had.
func (r *playRun) NewName() string {
	r.serial++
	return "p" + string(rune('a'+r.serial/26)) + string(rune('a'+r.serial%26))
}

// AnyRevision is the revision of a new process.
func (r *playRun) AnyRevision() string { return playRevisions[r.Intn(len(playRevisions))] }

// AnyMake is what a new process elects by.
func (r *playRun) AnyMake() electorKind { return r.Mix[r.Intn(len(r.Mix))] }

// IsCalm reports whether nothing goes wrong any more.
func (r *playRun) IsCalm() (is bool) {
	r.Locked(func() { is = r.Calm })
	return is
}

// Logf adds a line to the log.
func (r *playRun) Logf(format string, args ...any) {
	r.Locked(func() { fmt.Fprintf(&r.log, "%v "+format+"\n", append([]any{time.Since(r.Began)}, args...)...) })
}

// Log is what was logged so far, for those who hold Mu.
func (r *playRun) Log() string { return r.log.String() }

// Violate notes what must not be.
func (r *playRun) Violate(format string, args ...any) {
	r.Locked(func() { r.Violated(format, args...) })
}

// Violated is Violate for those who hold Mu.
func (r *playRun) Violated(format string, args ...any) {
	r.Violations = append(r.Violations, fmt.Sprintf("%v: ", time.Since(r.Began))+fmt.Sprintf(format, args...))
}

// Logger is a process's: its lines are in the log, and counted.
func (r *playRun) Logger(p *part) *slog.Logger {
	return slog.New(slog.NewTextHandler(&playLines{r, p}, nil))
}

type playLines struct {
	r *playRun
	p *part
}

func (l *playLines) Write(b []byte) (int, error) {
	l.r.Logf("%s: %s", l.p.Name, strings.TrimSpace(string(b)))
	l.r.Locked(func() { l.p.Lines = append(l.p.Lines, time.Since(l.r.Began)) })
	return len(b), nil
}

// Fit is a process's fitness check.
func (r *playRun) Fit(p *part) func(context.Context) error {
	return func(context.Context) (unfit error) {
		r.Locked(func() { unfit = p.Unfit })
		return unfit
	}
}

// TurnFitness changes whether a process wants to lead.
func (r *playRun) TurnFitness(p *part) {
	r.Locked(func() {
		if p.Unfit == nil {
			p.Unfit = context.DeadlineExceeded
		} else {
			p.Unfit = nil
		}
	})
	r.Logf("%s is unfit: %v", p.Name, p.Unfit != nil)
}

// CheckLines is that a process logs no more than maxLines in that span, for those who hold Mu.
func (r *playRun) CheckLines(p *part, span time.Duration) {
	if n := mostInSpan(p.Lines, span); n > maxLines {
		r.Violated("%s logged %d lines in %v", p.Name, n, span)
	}
}

// playOperator gives a person's orders about one election.
type playOperator interface {
	Transfer(ctx context.Context, to, key, why string, hold time.Duration) error
	StepDown(ctx context.Context, why string, coolDown time.Duration) error
	Pause(ctx context.Context, why string, hold time.Duration) error
	Resume(ctx context.Context) error
}

// GiveOrder has an operator give one, which has to come back by itself. pick is who may be to lead,
// longest what an order stands at most, and bound how long it may take.
func (r *playRun) GiveOrder(ctx context.Context, pick func() *part, operator func(revision string, m electorKind) playOperator, longest, bound time.Duration) {
	m := r.AnyMake()
	for m.Peer() {
		m = r.Mix[0]
	}
	revision, to := r.AnyRevision(), "nobody"
	if r.Intn(4) > 0 {
		to = pick().Name
	}
	o := operator(revision, m)
	length, which := time.Second+r.Within(longest), r.Intn(4)
	r.Ordered++
	r.Orders.Go(func() {
		began := time.Now()
		err := []func() error{
			func() error { return o.Transfer(ctx, to, revision, "", length) },
			func() error { return o.StepDown(ctx, "", length) },
			func() error { return o.Pause(ctx, "", length) },
			func() error { return o.Resume(ctx) },
		}[which]()
		r.Logf("order %d (%v) to %s: %v", which, m, to, err)
		if took := time.Since(began); took > bound {
			r.Violate("order %d to %s took %v: %v", which, to, took, err)
		}
	})
}
