package simulation

import (
	"time"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// operate executes an operator command: guarded writes of annotations.
func (w *world) operate() {
	v := w.store.now
	if v.snap.Content != record.Readable || v.snap.Record.Holder == "" {
		return
	}
	w.oneOf(
		func() { w.order(v, w.nodes[w.rng.IntN(len(w.nodes))].name) },
		func() { w.order(v, w.nodes[w.rng.IntN(len(w.nodes))].name) },
		func() { w.order(v, "nobody") },
		func() { w.order(v, "") },
		func() { w.hold(v, v.snap.Record.Holder, v.snap.Record.Transitions) },
		func() { w.hold(v, v.snap.Record.Holder, v.snap.Record.Transitions-1) }, // of a former term
		w.resumeRank,
	)
}

// order requests the leader to hand over or to step down.
func (w *world) order(v view, to string) {
	s := v.snap
	if !names(s.Annotations.Marker, s.Record) || to == s.Record.Holder || addressed(s) && s.Annotations.Request.Accepted {
		return // it would have no effect
	}
	r := core.Request{
		Identity: to, Reason: record.ForOperator, Requester: "operator", Holder: s.Record.Holder, Transitions: s.Record.Transitions,
		Seconds: w.seconds(w.timing.lease), HoldSeconds: w.seconds(w.timing.lease),
	}
	if n := w.nodeOf(to); n != nil {
		r.Key = n.key
	}
	v.snap.Annotations.Request = r
	w.tracef("operator request: from %s in term %d to %q", r.Holder, r.Transitions, to)
	v = w.store.foreignEdit(v, false)
	if w.mode.Net == 0 && w.mode.Ambush == 0 {
		w.checkExecuted(v)
	}
}

// hold writes a hold for the given term.
func (w *world) hold(v view, holder string, transitions int) {
	v.snap = withoutOld(v.snap)
	v.snap.Annotations.Hold = core.Hold{
		Holder: holder, Transitions: transitions, Seconds: w.seconds(w.timing.lease), Requester: "operator", Reason: record.HoldForPause,
	}
	w.tracef("operator hold: %s in term %d for %ds", holder, transitions, v.snap.Annotations.Hold.Seconds)
	w.store.foreignEdit(v, false)
}

func (w *world) resumeRank() {
	if v := w.store.now; w.held() {
		v.snap = withoutOld(v.snap)
		v.snap.Annotations.Hold = core.Hold{}
		w.tracef("operator hold ends")
		w.store.foreignEdit(v, false)
	}
}

// seconds returns a random duration of up to d.
func (w *world) seconds(d time.Duration) int { return 1 + int(w.within(d).Seconds()) }

// checkExecuted checks that a live leader accepts an operator request within a RetryPeriod.
func (w *world) checkExecuted(ordered view) {
	p := ordered.term.p
	if p == nil || p.ended || !p.n.attends() || p.s.Phase != core.Leading {
		return
	}
	w.after(w.timing.retry, func() {
		if s := w.store.now.snap; !p.ended && p.n.attends() && s.Exists && s.UID == ordered.snap.UID && s.Record == ordered.snap.Record &&
			s.Annotations.Request == ordered.snap.Annotations.Request {
			w.violate(Orders, "%v has not accepted %+v within a RetryPeriod", p, s.Annotations.Request)
		}
	})
}

// unfitSome makes a process unfit for a while.
func (w *world) unfitSome() {
	n := w.some()
	p := n.p
	if p == nil {
		return
	}
	w.tracef("%v is unfit", p)
	w.fitness(p, true)
	w.after(w.within(2*w.timing.lease), func() { w.fitness(p, false) })
}

func (w *world) fitness(p *process, unfit bool) {
	if in := p.n.inner; in != nil && in.p != nil {
		in.p.w.fitness(in.p, unfit)
	}
	p.unfit = unfit
	p.n.run(func() {
		if !p.ended && p.seen.unfit != p.unfit {
			p.input(core.Input{Kind: core.Fitness, Unfit: p.unfit}, view{})
		}
	})
}

// withoutOld removes a nomination that no longer counts, as the operator commands do before they replace the
// hold.
func withoutOld(s core.Snapshot) core.Snapshot {
	if s.Annotations.Nominated.Transitions != s.Record.Transitions || s.Record.Renewed != s.Record.Acquired {
		s.Annotations.Nominated = core.Nomination{}
	}
	return s
}
