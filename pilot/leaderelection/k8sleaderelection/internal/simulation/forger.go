package simulation

import (
	"slices"
	"time"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// forge writes or removes one annotation, as a user with patch rights on the lock can. The record does not change.
// Each write may cost one handover. Afterwards a leader exists again within timing.idle.
func (w *world) forge() {
	v := w.store.now
	if !v.snap.Exists {
		return
	}
	a, r := &v.snap.Annotations, v.snap.Record
	const coolDown = 7 * 24 * 3600
	holder, transitions := r.Holder, r.Transitions
	if w.chance(0.2) {
		holder = w.anyName()
	}
	if w.chance(0.2) {
		transitions += w.rng.IntN(7) - 3
	}
	kinds := []func(){
		func() {
			a.Marker = core.Marker{Identity: holder, Transitions: transitions, Handover: w.chance(0.7), Unfit: w.chance(0.3), Uncoordinated: w.mode.Coordinated && w.chance(0.3)}
			if holder == "" { // no marker, as package record decodes it
				a.Marker = core.Marker{}
			}
		},
		func() {
			a.Request = core.Request{
				Identity: w.anyName(), Key: w.revision(), Reason: w.anyOf(record.ForDefaultRevision, record.ForLocalOverRemote, record.ForUnfit, record.ForOperator, "other"),
				Holder: holder, Transitions: transitions, Seconds: w.anySeconds(), HoldSeconds: w.anySeconds(), Accepted: w.chance(0.3), Refused: w.anyOf("", "", "no"),
			}
		},
		func() {
			a.Request = core.Request{Reason: record.ForOperator, Holder: r.Holder, Transitions: r.Transitions, Seconds: 60, HoldSeconds: coolDown}
		},
		func() { a.Nominated = core.Nomination{Identity: w.anyOf(r.Holder, w.anyName())} },
		func() {
			a.Hold = core.Hold{Holder: holder, Transitions: transitions, Seconds: w.anySeconds(), Reason: w.anyOf(record.HoldForPause, record.HoldForTransfer)}
		},
		func() { v.snap.Strategy, v.snap.Preferred = w.chance(0.9), w.anyName() },
		func() { a.Marker, a.Hold = core.Marker{}, core.Hold{} },
		func() { a.Request, a.Nominated = core.Request{}, core.Nomination{} },
	}
	kind := w.rng.IntN(len(kinds))
	if w.forgery < len(kinds) {
		kind = w.forgery
	}
	kinds[kind]()
	w.happened(1)
	w.checks.busyAt = w.now
	if v.term != nil {
		v.term.forged = true
	}
	w.tracef("a user writes annotations: %+v, strategy %v, preferred %q", *a, v.snap.Strategy, v.snap.Preferred)
	if v.term != nil && v.term.emptied {
		w.byHand(v)
		return
	}
	w.store.foreignEdit(v, false)
}

func (w *world) anyName() string {
	return w.anyOf("", "ghost", w.store.now.snap.Record.Holder, w.nodes[w.rng.IntN(len(w.nodes))].name, w.nodes[w.rng.IntN(len(w.nodes))].name)
}

func (w *world) anyOf(texts ...string) string { return texts[w.rng.IntN(len(texts))] }

// anySeconds returns up to a week.
func (w *world) anySeconds() int {
	return int([]time.Duration{0, time.Second, 10 * time.Second, time.Minute, time.Hour, 7 * 24 * time.Hour}[w.rng.IntN(6)].Seconds())
}

// cooled reports whether the process does not campaign because of a step-down request.
func (n *node) cooled() bool { return n.p != nil && n.p.s.BackOff.CoolDown > n.p.now().Mono }

// refuses reports whether a nominee failed recently, so that a leader refuses its requests. An empty name means any challenger.
func (n *node) refuses(challenger string) bool {
	if n.p == nil || n.p.s.Failed.Until <= n.p.now().Mono {
		return false
	}
	names := n.p.s.Failed.Names
	return challenger == "" || names[len(names)-1] != "" || slices.Contains(names[:], challenger)
}

// stranger is the holder in a record of overwrite.
const stranger = "stranger"

// overwrite writes a record with any lease, as a user with update rights on the lock can, next to the annotations or without them. The
// record is replaced within two leases. From then on a leader exists again within timing.idle.
func (w *world) overwrite() {
	v := w.store.now
	if v.snap.Content != record.Readable {
		return
	}
	r := &v.snap.Record
	r.Holder, r.Key, r.Lease = stranger, w.revision(), time.Duration(1+w.rng.IntN(3600))*time.Second
	r.Transitions++
	r.Renewed += 1e6
	if w.rng.IntN(2) == 0 {
		v.snap.Annotations = core.Annotations{}
	}
	v.term, v.released = &term{id: r.Holder}, false
	w.happened(2)
	w.checks.busyAt = w.now
	v = w.store.foreignEdit(v, false)
	w.tracef("a stranger writes %s with a lease of %v", shown(v.snap), r.Lease)
	w.heal(v.term)
}

// heal replaces the record of a term within two leases if it is still there. The rest of its lease then does not count.
func (w *world) heal(t *term) {
	w.after(w.within(2*w.timing.lease), func() {
		if t != nil && w.store.now.term == t {
			w.happened(2)
			w.oneOf(w.deleteLock, w.emptyRecord)
			w.tracef("a user heals the lock: %s", shown(w.store.now.snap))
		}
		w.checks.busyAt = w.now
	})
}
