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

// excludes reports whether the two must never run at once. Leaders that have come in one
// predecessor's place do not wait for each other; and for peers nobody answers.
func (p *process) excludes(q *process) bool {
	if p == q || p.l == nil || q.l == nil {
		return false
	}
	return p.make != withPredecessor || q.make != withPredecessor || p.revision == q.revision
}

// election names the one that a process takes part in, by which tokens grow.
func (p *process) election() string {
	if p.make == withPredecessor {
		return p.revision
	}
	return ""
}

// checkStart is one-at-a-time, and that tokens grow within one history.
func (w *world) checkStart(p *process, ctx context.Context) {
	token := w.token(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.dead {
		return
	}
	w.terms++
	for _, q := range w.all {
		if q.running && p.excludes(q) {
			w.violated("%s started while %s runs", p.name, q.name)
		}
	}
	// A start that follows a write from before a restore belongs to neither history.
	if time.Since(w.restored) < playLease && !w.restored.IsZero() {
		return
	}
	last := w.tokens[p.election()]
	// When the predecessor's lock was lost, functions start again in the same term.
	again := p.make == withPredecessor && token == last.token && p == last.process
	if token <= last.token && !again {
		w.violated("%s has the token %d after %d", p.name, token, last.token)
	}
	w.tokens[p.election()] = held{token, p}
}

// held is the newest token of an election, and whose it is.
type held struct {
	token   uint64
	process *process
}

// checkWrite is that no write gets past the gate while another's functions run.
func (w *world) checkWrite(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.dead {
		return
	}
	for _, q := range w.all {
		if q.running && p.excludes(q) {
			w.violated("%s writes while %s runs", p.name, q.name)
		}
	}
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
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		holder := e.Snapshot.Record.HolderIdentity
		if !e.Snapshot.Exists || holder == e.By || holder == k8sresourcelock.Successors {
			continue
		}
		for _, p := range w.all {
			if p.name != e.By || p.l == nil || !gaveAway(e, p) {
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

// gaveAway: a challenger's request, too, is a write beside another's record.
func gaveAway(e locktest.Event, p *process) bool {
	holder := e.Snapshot.Record.HolderIdentity
	return holder == "" || e.Snapshot.Notes[k8sresourcelock.NominatedAnnotation] == holder
}

// The budgets: a span is ten RetryPeriods.
const (
	budgetSpan = 10 * playRetry
	// maxRequests is the most that a process sends about one object in a span, in whatever
	// state and failure; a leader's renewals are ten of them.
	maxRequests = 100
	// maxLines is the most that it logs.
	maxLines = 100
)

// inSpan is the most of these instants that fall in one span.
func inSpan(at []time.Duration) (most int) {
	for i, first := 0, 0; i < len(at); i++ {
		for at[i]-at[first] > budgetSpan {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// checkBudgets is bounded effort.
func (w *world) checkBudgets() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.all {
		if p.l == nil {
			continue
		}
		for _, sent := range p.sent {
			if n := inSpan(sent); n > maxRequests {
				w.violated("%s sent %d requests about one object in %v", p.name, n, budgetSpan)
			}
		}
		if n := inSpan(p.lines); n > maxLines {
			w.violated("%s logged %d lines in %v", p.name, n, budgetSpan)
		}
	}
}

func (w *world) mostRequests() (most int) {
	for _, p := range w.all {
		if p.l != nil {
			most = max(most, inSpan(p.sent[0]), inSpan(p.sent[1]))
		}
	}
	return most
}

// settle lets everything heal and wants one leader, of the default revision if it has a
// process that is ours.
func (w *world) settle() {
	w.set(nil, func() {
		w.calm = true
		for _, p := range w.processes {
			p.unfit = nil
		}
	})
	w.logf("calm")
	for _, s := range w.stores() {
		// An unreadable object keeps those out who need both. They report it, and an operator
		// deletes it.
		if s.Snapshot().Unreadable != nil {
			w.startable()
			s.Delete()
		}
	}
	w.orders.Wait() // what is on its way still changes something
	for _, p := range w.processes {
		p.watcher.set(w.deflt)
		for _, c := range p.clients {
			c.SetWatchDelay(0)
		}
	}
	<-time.After(12 * playLease)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.processes {
		if p.running {
			return
		}
	}
	w.violated("after twelve quiet leases nobody leads: default %s, %+v, %+v; %s", w.deflt, w.objects.Snapshot().Record, w.leases["stable"].Snapshot().Record, w.standing())
}

// standing tells where each process is, for those who hold mu.
func (w *world) standing() string {
	var b strings.Builder
	for _, p := range w.processes {
		fmt.Fprintf(&b, "\n\t%s (%s, %v): last request at %v", p.name, p.revision, p.make, p.asked)
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
	count := func(p *process) [3]int { return [3]int{len(p.runs), len(p.lines), len(p.sent[0]) + len(p.sent[1])} }
	w.mu.Lock()
	for _, p := range w.processes {
		before[p] = count(p)
		verbs[p] = [2]map[locktest.Verb]int{maps.Clone(p.verbs[0]), maps.Clone(p.verbs[1])}
	}
	w.mu.Unlock()
	const span = 4 * playLease
	<-time.After(span)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.processes {
		is, was := count(p), before[p]
		if p.l == nil {
			continue
		}
		if n := is[0] - was[0]; n > 0 {
			w.violated("%s started %d times for no cause", p.name, n)
		}
		if n := is[1] - was[1]; n > 0 {
			w.violated("%s logged %d lines for no cause", p.name, n)
		}
		most := 4                            // a watch reaches its time limit
		if p.l.Status().Phase == "leading" { // it renews, and may be waiting for the predecessor's lock
			most += 2 * (int(span/playRetry) + 1) // there may be two objects
		}
		if n := is[2] - was[2]; n > most {
			w.violated("%s, which works %v, sent %d requests in %v: %v, before %v", p.name, p.running, n, span, p.verbs, verbs[p])
		}
	}
}
