package leaderelection

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// electorKind is the kind of elector and lock of a process.
type electorKind int

const (
	configMapOnly electorKind = iota
	bothLocks
	leaseOnly
	istiodPeer
	clientGoPeer
)

func (m electorKind) String() string {
	return [...]string{"configmap", "both", "lease", "istiod", "client-go"}[m]
}

// Peer reports whether the elector is not incumbent.
func (m electorKind) Peer() bool { return m == istiodPeer || m == clientGoPeer }

// mix is a set of kinds of electors that may take part together.
type mix []electorKind

// mixes are all mixes. Each seed uses one of them.
var mixes = []mix{
	{configMapOnly, configMapOnly, istiodPeer},
	{leaseOnly, leaseOnly, clientGoPeer},
	{leaseOnly, leaseOnly, istiodPeer},
	{configMapOnly, bothLocks},
	{bothLocks, leaseOnly},
}

// ByLease reports whether all elect by one Lease alone.
func (m mix) ByLease() bool { return m[0] == leaseOnly }

// playRevisions are the revisions of processes.
var playRevisions = []string{"stable", "canary"}

// playRun makes the random choices of a seed and records their results.
type playRun struct {
	Mix    mix
	Began  time.Time
	Orders sync.WaitGroup // pending operator commands
	// Untouched is the earliest time for a new process, see AwaitUntouched.
	Untouched time.Time
	serial    int

	Mu         sync.Mutex // guards the following fields, and fields of world
	Rand       *rand.Rand
	Calm       bool // no more faults
	Default    string
	Ordered    int
	Violations []string
	log        strings.Builder
}

// newPlayRun returns the run of a seed.
func newPlayRun(seed uint64) *playRun {
	return &playRun{Mix: mixes[seed%uint64(len(mixes))], Began: time.Now(), Rand: rand.New(rand.NewPCG(seed, 17)), Default: playRevisions[0]}
}

// numberFrom returns the number in an environment variable.
func numberFrom(t testing.TB, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		t.Fatalf("%s=%s: give a number", variable, text)
	}
	return n
}

// Locked calls f with Mu held.
func (r *playRun) Locked(f func()) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	f()
}

// Intn returns a random number below n.
func (r *playRun) Intn(n int) (chosen int) {
	r.Locked(func() { chosen = r.Rand.IntN(n) })
	return chosen
}

// Within returns a random duration below a maximum.
func (r *playRun) Within(most time.Duration) time.Duration { return time.Duration(r.Intn(int(most))) }

// Wait waits for a random time below most.
func (r *playRun) Wait(most time.Duration) { <-time.After(r.Within(most)) }

// AwaitUntouched waits until a new process can start. one-at-a-time does not cover a candidate that has never
// seen the record of a holder that may still be active.
func (r *playRun) AwaitUntouched() {
	if d := time.Until(r.Untouched); d > 0 {
		<-time.After(d)
	}
}

// NewName returns an unused name.
func (r *playRun) NewName() string {
	r.serial++
	return "p" + string(rune('a'+r.serial/26)) + string(rune('a'+r.serial%26))
}

// AnyRevision returns a random revision.
func (r *playRun) AnyRevision() string { return playRevisions[r.Intn(len(playRevisions))] }

// AnyMake returns a random kind of elector.
func (r *playRun) AnyMake() electorKind { return r.Mix[r.Intn(len(r.Mix))] }

// IsCalm reports whether there are no more faults.
func (r *playRun) IsCalm() (is bool) {
	r.Locked(func() { is = r.Calm })
	return is
}

// Logf adds a line to the log.
func (r *playRun) Logf(format string, args ...any) {
	r.Locked(func() { fmt.Fprintf(&r.log, "%v "+format+"\n", append([]any{time.Since(r.Began)}, args...)...) })
}

// Log returns the log. The caller holds Mu.
func (r *playRun) Log() string { return r.log.String() }

// Violate records a violation.
func (r *playRun) Violate(format string, args ...any) {
	r.Locked(func() { r.Violated(format, args...) })
}

// Violated records a violation. The caller holds Mu.
func (r *playRun) Violated(format string, args ...any) {
	r.Violations = append(r.Violations, fmt.Sprintf("%v: ", time.Since(r.Began))+fmt.Sprintf(format, args...))
}

// Logger returns the logger of a process. It counts lines.
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

// Fit returns the fitness check of a process.
func (r *playRun) Fit(p *part) func(context.Context) error {
	return func(context.Context) (unfit error) {
		r.Locked(func() { unfit = p.Unfit })
		return unfit
	}
}

// TurnFitness inverts the fitness of a process.
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

// CheckLines checks the number of log lines of a process. The caller holds Mu.
func (r *playRun) CheckLines(p *part, span time.Duration) {
	if n := mostInSpan(p.Lines, span); n > maxLines {
		r.Violated("%s logged %d lines in %v", p.Name, n, span)
	}
}
