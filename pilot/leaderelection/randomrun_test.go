package leaderelection

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// electorKind is the kind of elector and lock of a process.
type electorKind int

const (
	configMapOnly electorKind = iota
	bothLocks
	leaseOnly
	clientGoPeer
)

func (m electorKind) String() string {
	return [...]string{"configmap", "both", "lease", "client-go"}[m]
}

// mix is a set of kinds of electors that may take part together.
type mix []electorKind

// mixes are all mixes. Each seed uses one of them. Package simulation has candidates that behave like istiod.
var mixes = []mix{
	{leaseOnly, leaseOnly, clientGoPeer},
	{configMapOnly, configMapOnly},
}

// playRevisions are the revisions of processes.
var playRevisions = []string{"stable", "canary"}

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

// locked calls f with mu held.
func (w *world) locked(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// intn returns a random number below n.
func (w *world) intn(n int) (chosen int) {
	w.locked(func() { chosen = w.rand.IntN(n) })
	return chosen
}

// within returns a random duration below a maximum.
func (w *world) within(most time.Duration) time.Duration { return time.Duration(w.intn(int(most))) }

// wait waits for a random time below most.
func (w *world) wait(most time.Duration) { <-time.After(w.within(most)) }

// awaitUntouched waits until a new process can start. one-at-a-time does not cover a candidate that has never
// seen the record of a holder that may still be active.
func (w *world) awaitUntouched() {
	if d := time.Until(w.untouched); d > 0 {
		<-time.After(d)
	}
}

// newName returns an unused name.
func (w *world) newName() string {
	w.serial++
	return "p" + string(rune('a'+w.serial/26)) + string(rune('a'+w.serial%26))
}

// anyRevision returns a random revision.
func (w *world) anyRevision() string { return playRevisions[w.intn(len(playRevisions))] }

// anyKind returns a random kind of elector.
func (w *world) anyKind() electorKind { return w.mix[w.intn(len(w.mix))] }

// isCalm reports whether there are no more faults.
func (w *world) isCalm() (is bool) {
	w.locked(func() { is = w.calm })
	return is
}

// logf adds a line to the log.
func (w *world) logf(format string, args ...any) {
	w.locked(func() { fmt.Fprintf(&w.log, "%v "+format+"\n", append([]any{time.Since(w.began)}, args...)...) })
}

// violate records a violation.
func (w *world) violate(format string, args ...any) {
	w.locked(func() { w.violated(format, args...) })
}

// violated records a violation. The caller holds mu.
func (w *world) violated(format string, args ...any) {
	w.violations = append(w.violations, fmt.Sprintf("%v: ", time.Since(w.began))+fmt.Sprintf(format, args...))
}

// playLines logs and counts the lines of a process.
type playLines struct{ p *process }

func (l *playLines) Write(b []byte) (int, error) {
	w := l.p.w
	w.logf("%s: %s", l.p.name, strings.TrimSpace(string(b)))
	w.locked(func() { l.p.lines = append(l.p.lines, time.Since(w.began)) })
	return len(b), nil
}

// fit is the fitness check of a process.
func (p *process) fit(context.Context) (unfit error) {
	p.w.locked(func() { unfit = p.unfit })
	return unfit
}

// fitness inverts the fitness of one process.
func (w *world) fitness() {
	p := w.pick()
	w.locked(func() {
		if p.unfit == nil {
			p.unfit = context.DeadlineExceeded
		} else {
			p.unfit = nil
		}
	})
	w.logf("%s is unfit: %v", p.name, p.unfit != nil)
}
