package leaderelection

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// checkStart checks one-at-a-time, and that tokens increase within one history.
func (w *world) checkStart(p *process, ctx context.Context) {
	token := w.token(ctx)
	w.Mu.Lock()
	defer w.Mu.Unlock()
	// A start that follows a write from before a restore belongs to neither history.
	w.judge.Starts(&p.part, token, time.Since(w.restored) < playLease && !w.restored.IsZero())
}

// takeEvents returns the history of the locks. After a restore it does not contain the lost part.
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

// checkEvents checks that no process releases or hands over a lock while its run functions are active.
func (w *world) checkEvents() {
	w.takeEvents()
	w.Mu.Lock()
	defer w.Mu.Unlock()
	for _, e := range w.events {
		holder := e.Snapshot.Record.HolderIdentity
		if !e.Snapshot.Exists {
			continue
		}
		if nominates(e) && !slices.ContainsFunc(w.all, func(p *process) bool { return p.Name == holder && !p.poor }) {
			w.Violated("a leader drained for %s, which must not acquire the lock", holder)
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

// gaveAway does not count the request of a challenger, which keeps the record.
func gaveAway(e locktest.Event, p *process) bool {
	holder := e.Snapshot.Record.HolderIdentity
	return holder == "" || e.Snapshot.Annotations[k8sresourcelock.NominatedAnnotation] == holder
}

// nominates does not count the transfer of an operator.
func nominates(e locktest.Event) bool {
	a := e.Snapshot.Annotations
	return a[k8sresourcelock.NominatedAnnotation] != "" && a[k8sresourcelock.NominatedAnnotation] == e.Snapshot.Record.HolderIdentity && a[k8sresourcelock.HoldAnnotation] == ""
}

// budgetSpan is the time span of the budgets.
const budgetSpan = 10 * playRetry

// checkBudgets checks bounded effort. It returns the maximum number of requests of a process for one object.
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

// endFaults ends all faults and checks that one candidate leads, of the default revision if possible.
func (w *world) endFaults() {
	w.Locked(func() {
		w.Calm = true
		for _, p := range w.processes {
			p.Unfit = nil
		}
	})
	w.Logf("calm")
	ended := time.Now()
	for _, s := range w.stores() {
		// A candidate that needs both objects cannot lead if one is unreadable. It reports the object, and an operator
		// deletes it.
		if s.Snapshot().Unreadable != nil {
			w.AwaitUntouched()
			s.Delete()
		}
	}
	w.Orders.Wait() // pending commands still change the lock
	for _, p := range w.processes {
		p.hears(w.Default)
		for _, c := range p.clients {
			c.SetWatchDelay(0)
		}
	}
	<-time.After(12 * playLease)
	problem := w.unsettled()
	if problem != "" && w.nomineeFailed() {
		<-time.After(longestRefusal)
		problem = w.unsettled()
	}
	if problem != "" {
		w.Locked(func() { w.Violated("%v after the end of the faults %s; %s", time.Since(ended), problem, w.states()) })
	}
}

// longestRefusal is the time that a leader refuses a challenger that was nominated and did not acquire the lock.
const longestRefusal = 5 * time.Minute

// nomineeFailed reports whether a nominee did not acquire a lock recently.
func (w *world) nomineeFailed() bool {
	for _, s := range w.stores() {
		nominee := ""
		for _, e := range s.History() {
			holder := e.Snapshot.Record.HolderIdentity
			if nominee != "" && nominee != holder && time.Since(e.At) < longestRefusal {
				return true
			}
			nominee = ""
			if e.Snapshot.Annotations[k8sresourcelock.NominatedAnnotation] == holder {
				nominee = holder
			}
		}
	}
	return false
}

// unsettled returns a problem unless a candidate leads, of the default revision if possible.
func (w *world) unsettled() string {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	leader := ""
	for _, p := range w.processes {
		if p.Running && (p.Revision == w.Default || !w.prefers(w.Default)) {
			return ""
		}
		if p.Running {
			leader = p.Name
		}
	}
	if leader != "" {
		return fmt.Sprintf("%s leads, which is not of the default revision %s", leader, w.Default)
	}
	if !slices.ContainsFunc(w.processes, func(p *process) bool { return !p.poor }) {
		return ""
	}
	return fmt.Sprintf("no candidate leads: default %s, %+v, %+v", w.Default, w.objects.Snapshot().Record, w.leases["stable"].Snapshot().Record)
}

// prefers reports whether a process of that revision must lead. A peer that cannot be preempted may lead
// instead.
func (w *world) prefers(revision string) (is bool) {
	for _, p := range w.processes {
		if p.Make.Peer() {
			return false
		}
		is = is || p.Revision == revision && !p.poor
	}
	return is
}

// states returns the state of each process. The caller holds Mu.
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

// staysQuiet checks that no term starts, no process logs, a leader writes once per RetryPeriod, and a
// follower with a watch sends no requests.
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
		if p.l == nil || p.poor {
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
