package coordination

import (
	"container/heap"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// simStart is the wall clock's time at the beginning of a run.
var simStart = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// simWorld is one random run of an election: a store, coordinators that do what Observer.Plan says, and candidates that keep to
// their part of the contract. It has no goroutine and reads no clock: what happens is a function of its seed. Times are true times
// since it began.
type simWorld struct {
	seed  uint64
	rng   *rand.Rand
	now   time.Duration
	queue simQueue
	count int
	trace io.Writer // nil: nobody reads it

	store           *simStore
	coordinators    []*simCoordinator
	candidates      []*simCandidate
	named           int
	defaultRevision string
	bug             simBug
	checks          simChecks

	stormy, shown bool
	late          time.Duration // what was late in the last storm has come by then
	// Ambushes wait for their moment: who is named next dies, who is preferred next dies before the handover, who is asked next is deleted.
	killNamed, killPreferred, deleteAsked bool
}

func newSimWorld(seed uint64, bug simBug, trace io.Writer) *simWorld {
	w := &simWorld{seed: seed, rng: rand.New(rand.NewPCG(seed, 41)), bug: bug, trace: trace, defaultRevision: simRevisions[0]}
	w.store = newSimStore(w)
	w.checks = simChecks{w: w}
	return w
}

// simEvent is something that happens at a time; those of one time happen in the order in which they were scheduled.
type simEvent struct {
	at  time.Duration
	seq int
	f   func()
}

type simQueue []simEvent

func (q simQueue) Len() int { return len(q) }
func (q simQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q simQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *simQueue) Push(e any)   { *q = append(*q, e.(simEvent)) }
func (q *simQueue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = simEvent{}
	*q = (*q)[:last]
	return e
}

func (w *simWorld) at(at time.Duration, f func()) {
	w.count++
	heap.Push(&w.queue, simEvent{max(at, w.now), w.count, f})
}

func (w *simWorld) after(d time.Duration, f func()) { w.at(w.now+d, f) }

// runFor plays what happens in d, unless what is to be shown is shown.
func (w *simWorld) runFor(d time.Duration) {
	end := w.now + d
	for len(w.queue) > 0 && w.queue[0].at <= end && !w.shown {
		e := heap.Pop(&w.queue).(simEvent)
		w.now = e.at
		e.f()
	}
	w.now = end
}

func (w *simWorld) chance(p float64) bool { return w.rng.Float64() < p }

func (w *simWorld) between(least, most time.Duration) time.Duration {
	return least + time.Duration(w.rng.Int64N(int64(most-least)+1))
}

func (w *simWorld) tracef(format string, args ...any) {
	if w.trace != nil {
		fmt.Fprintf(w.trace, "%10.3fs "+format+"\n", append([]any{w.now.Seconds()}, args...)...)
	}
}

var errSimUnknown = errors.New("no reply came")

// call sends a request, which arrives later, or not at all, and hands over its reply. In a storm replies get lost, and
// requests arrive after their sender has given them up.
func (w *simWorld) call(reachable bool, arrive func() error, reply func(error)) {
	there, back := w.between(time.Millisecond, 5*time.Millisecond), w.between(time.Millisecond, 5*time.Millisecond)
	if w.chance(0.1) {
		back = w.between(0, 100*time.Millisecond)
	}
	if !reachable {
		w.after(requestTimeout, func() { reply(errSimUnknown) })
		return
	}
	if !w.stormy || !w.chance(0.15) {
		w.after(there, func() {
			err := arrive()
			w.after(back, func() { reply(err) })
		})
		return
	}
	switch w.rng.IntN(3) {
	case 0:
		w.tracef("  a request is lost")
		w.after(w.between(0, requestTimeout), func() { reply(errSimUnknown) })
	case 1:
		w.tracef("  the reply to a request is lost")
		w.after(there, func() {
			_ = arrive()
			w.after(w.between(0, requestTimeout), func() { reply(errSimUnknown) })
		})
	default:
		w.tracef("  a request is late")
		late := w.between(0, 2*requestTimeout)
		if late < requestTimeout {
			w.after(late, func() {
				err := arrive()
				w.after(back, func() { reply(err) })
			})
			return
		}
		w.after(late, func() { _ = arrive() })
		w.after(requestTimeout, func() { reply(errSimUnknown) })
	}
}

// spreadLease has everybody see a change of the lock, some later than others; nil: it is gone.
func (w *simWorld) spreadLease(l *coordinationv1.Lease) {
	for _, c := range w.coordinators {
		w.at(c.sees("lock"), func() { c.seeLease(l) })
	}
	for _, p := range w.candidates {
		if p.alive {
			w.at(p.sees(&p.leaseAt), func() { p.seeLease(l) })
		}
	}
	w.after(w.between(5*time.Millisecond, 50*time.Millisecond), w.kubernetes)
}

// kubernetes is the API server's own controller, as far as it has a part in other strategies' elections: it makes
// the lock, without a holder, and writes the candidates' strategy on one that is free.
func (w *simWorld) kubernetes() {
	l := w.store.lease
	strategy := coordinationv1.CoordinatedLeaseStrategy(DefaultRevision)
	switch {
	case len(w.store.candidates) == 0:
	case l == nil:
		w.tracef("Kubernetes makes the lock")
		w.store.createLease(&strategy)
	case strategyOf(l) != DefaultRevision && (value(l.Spec.HolderIdentity) == "" || w.now > w.store.ends()):
		w.tracef("Kubernetes writes the strategy")
		l = l.DeepCopy()
		l.Spec.Strategy = &strategy
		_, _ = w.store.putLease(l)
	}
}

// candidate is the process of that name, nil if there was none.
func (w *simWorld) candidate(name string) *simCandidate {
	for _, p := range w.candidates {
		if p.name == name {
			return p
		}
	}
	return nil
}

// leader is the process that leads, by what is stored and by what it believes itself.
func (w *simWorld) leader() *simCandidate {
	if w.store.lease == nil {
		return nil
	}
	if p := w.candidate(value(w.store.lease.Spec.HolderIdentity)); p != nil && p.alive && p.leading {
		return p
	}
	return nil
}

// trouble notes that something has happened that may have consequences: bounds count from now.
func (w *simWorld) trouble(format string, args ...any) {
	w.tracef("-- "+format, args...)
	w.checks.troubledAt = w.now
	w.checks.troubles++
	w.checks.causes = append(w.checks.causes, w.now)
}

// tick looks at what must not last.
func (w *simWorld) tick() {
	w.checks.tick()
	w.after(time.Second, w.tick)
}
