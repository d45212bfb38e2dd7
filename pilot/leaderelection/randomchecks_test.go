package leaderelection

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/locktest"
)

// ran records the start or end of the run functions. A killed process runs no functions.
func (p *process) ran(is bool) { p.w.locked(func() { p.record(is) }) }

// record implements ran. The caller holds mu.
func (p *process) record(is bool) {
	if p.dead {
		return
	}
	if p.running = is; is {
		p.runs = append(p.runs, span{from: time.Now()})
	} else {
		p.runs[len(p.runs)-1].to = time.Now()
	}
}

// checkAlone checks one-at-a-time when a process does something. Other electors are not covered. The caller holds mu.
func (w *world) checkAlone(p *process, does string) {
	for _, q := range w.all {
		if q.running && p != q && p.kind != clientGoPeer && q.kind != clientGoPeer {
			w.violated("%s %s while %s runs", p.name, does, q.name)
		}
	}
}

// checkStart checks one-at-a-time, and that tokens increase within one history.
func (w *world) checkStart(p *process, ctx context.Context) {
	token := w.tokenOf(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.dead {
		return
	}
	w.terms++
	w.checkAlone(p, "started")
	// A start that follows a write from before a restore belongs to neither history.
	if !w.restored.IsZero() && time.Since(w.restored) < playLease {
		return
	}
	if token <= w.token {
		w.violated("%s has the token %d after %d", p.name, token, w.token)
	}
	w.token = token
}

// takeEvents adds the events of the locks, because a store forgets the lost events when it is restored. Events before a restore are
// added twice and checked twice.
func (w *world) takeEvents() {
	w.events = slices.Concat(w.events, w.objects.History(), w.leases.History())
}

// checkEvents checks that no process releases or hands over a lock while its run functions are active.
func (w *world) checkEvents() {
	w.takeEvents()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		holder := e.Snapshot.Record.HolderIdentity
		if !e.Snapshot.Exists {
			continue
		}
		if nominates(e) && !slices.ContainsFunc(w.all, func(p *process) bool { return p.name == holder && !p.poor }) {
			w.violated("a leader drained for %s, which must not acquire the lock", holder)
		}
		for _, p := range w.all {
			if p.writer != e.By || p.l == nil || holder == p.name || !gaveAway(e, p) {
				continue
			}
			for _, run := range p.runs {
				if e.At.After(run.from) && (run.to.IsZero() || e.At.Before(run.to)) {
					w.violated("%s wrote %q in as the holder at %v, and its functions ran", p.name, holder, e.At.Sub(w.began))
				}
			}
		}
	}
}

// gaveAway does not count the request of a challenger, which keeps the record.
func gaveAway(e locktest.Event, p *process) bool {
	holder := e.Snapshot.Record.HolderIdentity
	return holder == "" || e.Snapshot.Annotations[record.NominatedAnnotation] == holder
}

// nominates does not count the transfer of an operator.
func nominates(e locktest.Event) bool {
	a := e.Snapshot.Annotations
	return a[record.NominatedAnnotation] != "" && a[record.NominatedAnnotation] == e.Snapshot.Record.HolderIdentity && a[record.HoldAnnotation] == ""
}

// budgetSpan is the time span of the budgets. A leader sends ten renewals in it.
const budgetSpan = 10 * playRetry

// maxInSpan is the maximum number of requests of a process for one object, and of its log lines.
const maxInSpan = 100

// mostInSpan returns the maximum number of sorted times within a span.
func mostInSpan(at []time.Duration, span time.Duration) (most int) {
	for i, first := 0, 0; i < len(at); i++ {
		for at[i]-at[first] > span {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// checkBudgets checks bounded effort. It returns the maximum number of requests of a process for one object.
func (w *world) checkBudgets() (most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.all {
		if p.l == nil {
			continue
		}
		for _, sent := range p.sent {
			n := mostInSpan(sent, budgetSpan)
			if most = max(most, n); n > maxInSpan {
				w.violated("%s sent %d requests about one object in %v", p.name, n, budgetSpan)
			}
		}
		if n := mostInSpan(p.lines, budgetSpan); n > maxInSpan {
			w.violated("%s logged %d lines in %v", p.name, n, budgetSpan)
		}
	}
	return most
}

// endFaults ends all faults and checks that one candidate leads, of the default revision if possible.
func (w *world) endFaults() {
	w.locked(func() {
		w.calm = true
		for _, p := range w.processes {
			p.unfit = nil
		}
	})
	w.logf("calm")
	ended := time.Now()
	for _, s := range w.stores() {
		// A candidate that needs both objects cannot lead if one is unreadable. It reports the object, and an operator
		// deletes it.
		if s.Snapshot().Unreadable != nil {
			w.awaitUntouched()
			s.Delete()
		}
	}
	w.orders.Wait() // pending commands still change the lock
	for _, p := range w.processes {
		p.hears(w.defaultRevision)
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
		w.locked(func() { w.violated("%v after the end of the faults %s; %s", time.Since(ended), problem, w.states()) })
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
			if e.Snapshot.Annotations[record.NominatedAnnotation] == holder {
				nominee = holder
			}
		}
	}
	return false
}

// unsettled returns a problem unless a candidate leads, of the default revision if possible.
func (w *world) unsettled() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	leader := ""
	for _, p := range w.processes {
		if p.running && (p.revision == w.defaultRevision || !w.prefers(w.defaultRevision)) {
			return ""
		}
		if p.running {
			leader = p.name
		}
	}
	if leader != "" {
		return fmt.Sprintf("%s leads, which is not of the default revision %s", leader, w.defaultRevision)
	}
	if !slices.ContainsFunc(w.processes, func(p *process) bool { return !p.poor }) {
		return ""
	}
	return fmt.Sprintf("no candidate leads: default %s, %+v, %+v", w.defaultRevision, w.objects.Snapshot().Record, w.leases.Snapshot().Record)
}

// prefers reports whether a process of that revision must lead. A peer that cannot be preempted may lead
// instead.
func (w *world) prefers(revision string) (is bool) {
	for _, p := range w.processes {
		if p.kind == clientGoPeer {
			return false
		}
		is = is || p.revision == revision && !p.poor
	}
	return is
}

// states returns the state of each process. The caller holds mu.
func (w *world) states() string {
	var b strings.Builder
	for _, p := range w.processes {
		fmt.Fprintf(&b, "\n\t%s (%s, %v): last request at %v", p.name, p.revision, p.kind, p.asked)
		if p.l == nil {
			continue
		}
		s := p.l.Status()
		fmt.Fprintf(&b, "; %s (%s) for %v, sees %q in term %d, default %q (%v), waiting %v, unfit %v",
			s.Phase, s.Reason, time.Since(s.Since), s.Holder, s.Transitions, s.Default.Revision, s.Default.Synced, s.Waiting, s.Unfit)
	}
	return b.String()
}

// staysQuiet checks that no term starts, no process logs, a leader writes once per RetryPeriod, and a
// follower with a watch sends no requests.
func (w *world) staysQuiet() {
	before := map[*process][3]int{}
	verbs := map[*process][2]map[string]int{}
	count := func(p *process) [3]int { return [3]int{len(p.runs), len(p.lines), len(p.sent[0]) + len(p.sent[1])} }
	w.mu.Lock()
	for _, p := range w.processes {
		before[p] = count(p)
		verbs[p] = [2]map[string]int{maps.Clone(p.verbs[0]), maps.Clone(p.verbs[1])}
	}
	w.mu.Unlock()
	const span = 4 * playLease
	<-time.After(span)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.processes {
		is, was := count(p), before[p]
		if p.l == nil || p.poor {
			continue
		}
		if n := is[0] - was[0]; n > 0 {
			w.violated("%s started %d times for no cause", p.name, n)
		}
		if n := is[1] - was[1]; n > 0 {
			w.violated("%s logged %d lines for no cause", p.name, n)
		}
		most := 4 // a watch reaches its time limit
		holdsOld := p.kind == bothLocks && w.objects.Snapshot().Record.HolderIdentity == p.name
		for _, renews := range []bool{p.l.Status().Phase == "leading", holdsOld} {
			if renews {
				most += int(span/playRetry) + 1
			}
		}
		if n := is[2] - was[2]; n > most {
			w.violated("%s, which works %v, sent %d requests in %v: %v, before %v", p.name, p.running, n, span, p.verbs, verbs[p])
		}
	}
}
