package simulation

import (
	"time"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// A witness of a node (package witness) releases the lock after a process has ended with a registered term. It may be late, lose
// replies, or act twice, as two witnesses or after a restart.

// witnessBugs are defects of the witness. They do not change Step.
var witnessBugs = []Bug{
	{"witness-releases-settling", "witness", Release, nil},
	{"witness-ignores-transitions", "witness", OneAtATime, nil},
	{"witness-ignores-uid", "witness", OwnLockOnly, nil},
	{"witness-of-live-process", "witness", OneAtATime, nil},
	{"witness-releases-twice", "witness", OwnLockOnly, nil},
	{"witness-forgets-marker", "witness", Release, nil},
}

func (w *world) has(bug string) bool { return w.Bug != nil && w.Bug.Name == "witness-"+bug }

// register registers the term after a step, as the loop does.
func (p *process) register() {
	if !p.n.witnessed {
		return
	}
	t, acting := p.cfg.Acting(&p.s)
	if p.w.has("releases-settling") && p.s.Phase == core.Settling {
		t, acting = core.EndedTerm{Holder: p.id, UID: p.s.Term.LockUID, Transitions: p.s.Term.Transitions, Acquired: p.s.Snap.Record.Acquired}, true
	}
	switch {
	case acting:
		p.registered = t
	case p.registered.Left(p.s.Snap) != core.HolderDied:
		p.registered = core.EndedTerm{}
	}
}

// died starts the releases after the end of a process.
func (w *world) died(p *process) {
	if p.registered == (core.EndedTerm{}) {
		return
	}
	if w.mode.Edits > 0 && w.chance(0.1) {
		w.after(w.within(time.Second), w.deleteLock) // the process may lead again in a new lock
	}
	for range 1 + w.rng.IntN(2) {
		d := w.within(100 * time.Millisecond)
		if w.chance(0.3) { // paused, or it cannot reach the store
			d = w.within(2 * w.timing.lease)
		}
		w.after(d, func() { w.release(p) })
	}
}

// left decides on a release.
func (w *world) left(t core.EndedTerm, s core.Snapshot) core.Reason {
	switch {
	case w.has("ignores-transitions"):
		t.Transitions, t.Acquired = s.Record.Transitions, s.Record.Acquired
	case w.has("ignores-uid"):
		t.UID, t.Acquired = s.UID, s.Record.Acquired
	}
	why := t.Left(s)
	if w.has("releases-settling") && why == core.EarlierHolderMayAct {
		return core.HolderDied
	}
	return why
}

// release reads the lock, and releases it later if it still has the term.
func (w *world) release(p *process) {
	base := w.store.now
	if w.left(p.registered, base.snap) != core.HolderDied {
		return
	}
	late := w.within(20 * time.Millisecond)
	if w.chance(0.2) {
		late = w.within(5 * time.Second)
	}
	w.after(late, func() { w.releaseOver(p, base) })
}

// releaseOver writes the release if the lock is still the version that the witness has read.
func (w *world) releaseOver(p *process, base view) {
	now := w.store.now
	guarded := now.snap.Version == base.snap.Version
	if !guarded && !w.has("releases-twice") || !now.snap.Exists {
		w.after(w.within(time.Second), func() { w.release(p) })
		return
	}
	if p.registered.Left(now.snap) != core.HolderDied && !w.has("releases-settling") {
		w.violate(OwnLockOnly, "the witness of %v releases another term: %s", p, shown(now.snap))
	}
	if now.term != nil && !now.term.marked {
		w.violate(Release, "the witness of %v releases a settling holder", p)
	}
	next := now
	next.snap.Content, next.snap.Record = record.Readable, now.snap.Released(p.n.clocks.moment(w.now).Wall)
	next.snap.Annotations, next.term, next.released = core.Annotations{}, nil, true
	if w.has("forgets-marker") {
		next.snap.Annotations.Marker = now.snap.Annotations.Marker
	}
	if next.snap.Annotations != (core.Annotations{}) {
		w.violate(Release, "the witness of %v leaves annotations of the term", p)
	}
	next.snap.Sum = sum(next.snap)
	w.tracef("the witness of %v releases the lock", p)
	w.store.commit(next)
	if w.chance(0.2) { // the reply is lost
		w.after(w.within(time.Second), func() { w.release(p) })
	}
}

// loseConnection ends the connection of a live process. The process has not ended, so its witness must not release.
func (w *world) loseConnection() {
	if n := w.some(); n.p != nil && n.p.registered != (core.EndedTerm{}) && w.has("of-live-process") {
		w.release(n.p)
	}
}
