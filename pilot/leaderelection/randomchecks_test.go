package leaderelection

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// checkStart is one-at-a-time, and that tokens grow within one history.
func (w *world) checkStart(p *process, ctx context.Context) {
	token := w.token(ctx)
	w.Mu.Lock()
	defer w.Mu.Unlock()
	// A start that follows a write from before a restore belongs to neither history.
	w.judge.Starts(&p.part, token, time.Since(w.restored) < playLease && !w.restored.IsZero())
}

// takeEvents keeps the history: a restore forgets the lost future.
func (w *world) takeEvents() {
	last := map[*locktest.Store]uint64{}
	for _, s := range w.stores() {
		for _, e := range s.History() {
			if e.Version > last[s] {
				w.events = append(w.events, e)
			}
		}
	}
}

// checkEvents is that nobody gives a lock up, or away, while its functions run.
func (w *world) checkEvents() {
	w.takeEvents()
	w.Mu.Lock()
	defer w.Mu.Unlock()
	for _, e := range w.events {
		holder := e.Snapshot.Record.HolderIdentity
		if !e.Snapshot.Exists {
			continue
		}
		for _, p := range w.all {
			if p.writer != e.By || p.l == nil || holder == p.Name || !gaveAway(e, p) {
				continue
			}
			for _, run := range p.Runs {
				if e.At.After(run.From) && (run.To.IsZero() || e.At.Before(run.To)) {
					w.Violated("%s wrote %q in as the holder at %v, and its functions ran", p.Name, holder, e.At.Sub(w.Began))
				}
			}
		}
	}
}

// gaveAway: a challenger's request, too, is a write beside another's record.
func gaveAway(e locktest.Event, p *process) bool {
	holder := e.Snapshot.Record.HolderIdentity
	return holder == "" || e.Snapshot.Annotations[k8sresourcelock.NominatedAnnotation] == holder
}

// budgetSpan is the time that the budgets are for.
const budgetSpan = 10 * playRetry

// checkBudgets is bounded effort; most is the most requests of one process about one object.
func (w *world) checkBudgets() (most int) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	for _, p := range w.all {
		if p.l == nil {
			continue
		}
		for _, sent := range p.sent {
			n := mostInSpan(sent, budgetSpan)
			if most = max(most, n); n > maxRequests {
				w.Violated("%s sent %d requests about one object in %v", p.Name, n, budgetSpan)
			}
		}
		w.CheckLines(&p.part, budgetSpan)
	}
	return most
}

// endFaults lets everything heal and wants one leader, of the default revision where that can be wanted.
func (w *world) endFaults() {
	w.Locked(func() {
		w.Calm = true
		for _, p := range w.processes {
			p.Unfit = nil
		}
	})
	w.Logf("calm")
	for _, s := range w.stores() {
		// An unreadable object keeps those out who need both. They report it, and an operator
		// deletes it.
		if s.Snapshot().Unreadable != nil {
			w.AwaitUntouched()
			s.Delete()
		}
	}
	w.Orders.Wait() // what is on its way still changes something
	for _, p := range w.processes {
		p.hears(w.Default)
		for _, c := range p.clients {
			c.SetWatchDelay(0)
		}
	}
	<-time.After(12 * playLease)
	w.Mu.Lock()
	defer w.Mu.Unlock()
	leader := ""
	for _, p := range w.processes {
		if p.Running && (p.Revision == w.Default || !w.prefers(w.Default)) {
			return
		}
		if p.Running {
			leader = p.Name
		}
	}
	if leader != "" {
		w.Violated("after twelve quiet leases %s leads, which is not of the default revision %s; %s", leader, w.Default, w.states())
		return
	}
	w.Violated("after twelve quiet leases nobody leads: default %s, %+v, %+v; %s", w.Default, w.objects.Snapshot().Record, w.leases["stable"].Snapshot().Record, w.states())
}

// prefers reports whether one of the processes must lead that are of that revision. A peer may lead,
// which nobody of ours may ask to give way, and beside a predecessor each revision has its own leader.
func (w *world) prefers(revision string) (is bool) {
	for _, p := range w.processes {
		if p.Make.Peer() {
			return false
		}
		is = is || p.Revision == revision
	}
	return is
}

// states tells where each process is, for those who hold mu.
func (w *world) states() string {
	var b strings.Builder
	for _, p := range w.processes {
		fmt.Fprintf(&b, "\n\t%s (%s, %v): last request at %v", p.Name, p.Revision, p.Make, p.asked)
		if p.l == nil {
			continue
		}
		s := p.l.Status()
		fmt.Fprintf(&b, "; %s (%s) for %v, sees %q in term %d, default %q (%v), waiting %v, unfit %v",
			s.Phase, s.Reason, time.Since(s.Since), s.Holder, s.Transitions, s.Default, s.DefaultKnown, s.Waiting, s.Unfit)
	}
	return b.String()
}

// staysQuiet wants that nothing happens any more: nobody starts, nobody logs, a leader writes
// once in a RetryPeriod, and a follower whose watch is up sends nothing.
func (w *world) staysQuiet() {
	before := map[*process][3]int{}
	verbs := map[*process][2]map[locktest.Verb]int{}
	count := func(p *process) [3]int { return [3]int{len(p.Runs), len(p.Lines), len(p.sent[0]) + len(p.sent[1])} }
	w.Mu.Lock()
	for _, p := range w.processes {
		before[p] = count(p)
		verbs[p] = [2]map[locktest.Verb]int{maps.Clone(p.verbs[0]), maps.Clone(p.verbs[1])}
	}
	w.Mu.Unlock()
	const span = 4 * playLease
	<-time.After(span)
	w.Mu.Lock()
	defer w.Mu.Unlock()
	for _, p := range w.processes {
		is, was := count(p), before[p]
		if p.l == nil {
			continue
		}
		if n := is[0] - was[0]; n > 0 {
			w.Violated("%s started %d times for no cause", p.Name, n)
		}
		if n := is[1] - was[1]; n > 0 {
			w.Violated("%s logged %d lines for no cause", p.Name, n)
		}
		most := 4                            // a watch reaches its time limit
		if p.l.Status().Phase == "leading" { // it renews, and may be waiting for the predecessor's lock
			most += 2 * (int(span/playRetry) + 1) // there may be two objects
		}
		if n := is[2] - was[2]; n > most {
			w.Violated("%s, which works %v, sent %d requests in %v: %v, before %v", p.Name, p.Running, n, span, p.verbs, verbs[p])
		}
	}
}
