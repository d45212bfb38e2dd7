package simulation

import (
	"fmt"
	"slices"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/derive"
)

// pairWorld is a run in which an election moves from one object to another: some of its
// candidates need both, the others one of the two, always the same in a run. The core
// decides; the requests that follow from its decisions are a model of a MultiLock's.
type pairWorld struct {
	*world
	rules   pairRules
	single  core.Half        // the one that those have who need one
	objects [2]core.Snapshot // as they are stored
	version uint64           // the newest of either
	uids    int              // how many there were
	procs   []*pairProcess   // those that live
	names   int              // how many were given
	// untouched is until when no process starts: it would not know what was removed.
	untouched Time
	order     *order
	orders    int
}

// pairTiming is that of pilot/leaderelection's random runs, which play the same over real locks.
var pairTiming = timing{lease: 10 * time.Second, cover: 6 * time.Second, retry: 1500 * time.Millisecond}

// pairActs is how much happens before the calm, and how far apart at most.
const (
	pairActs  = 25
	pairPause = 12 * time.Second
)

// runPair plays one seed of a mode with Pair.
func (w *world) runPair() Result {
	pw := &pairWorld{world: w, rules: rulesOf(w.Bug), single: core.Half(w.rng.IntN(2))}
	w.timing = pairTiming
	w.defaultRevision = core.DefaultRevision{Synced: true, Revision: w.revision()}
	for range 3 {
		pw.start("", w.revision())
	}
	at := Time(0)
	for range pairActs {
		at = at.add(w.within(pairPause))
		w.at(at, pw.act)
	}
	w.calm = at.add(w.timing.lease)
	w.at(w.calm, pw.beginCalm)
	w.end = w.calm.add(6 * w.timing.lease)
	w.at(w.end.add(-w.timing.lease), pw.checkLeads)
	w.play()
	return w.result
}

// start runs a process; one without a name gets a new one.
func (w *pairWorld) start(name, key string) {
	if name == "" {
		w.names++
		name = fmt.Sprintf("p%d", w.names)
	}
	if w.now < w.untouched {
		w.at(w.untouched, func() { w.start(name, key) })
		return
	}
	p := &pairProcess{
		w: w, id: name, key: key, both: w.rng.IntN(2) == 0, poor: w.chance(w.mode.Poor), step: core.Config.Step,
		clocks: clocks{
			rate: 1 + (2*w.rng.Float64()-1)*maxSkew, asleepAt: -1, hasBoot: true,
			monoZero: w.rng.Int64N(int64(1000 * time.Hour)), bootZero: int64(time.Hour), wallZero: 1_780_000_000e9 + int64(w.within(time.Hour)),
		},
	}
	t := w.timing
	p.cfg = core.Config{
		Self: name, Key: key, Ranked: true, Release: true,
		Timing: derive.Timing(core.Timing{Lease: t.lease, Cover: t.cover, Retry: t.retry}, delta),
	}
	w.procs = append(w.procs, p)
	w.tracef("%s starts, key %s, both %v", p.id, p.key, p.both)
	p.input(core.Input{Kind: core.DefaultChanged, Default: w.defaultRevision}, core.Pair{})
	w.after(w.within(100*time.Millisecond), p.openWatch)
}

// put is a guarded write that has arrived at one object.
func (w *pairWorld) put(h core.Half, base core.Snapshot, r core.Record, n core.Notes) (core.Result, core.Snapshot) {
	now := w.objects[h]
	if base.Exists != now.Exists || base.Exists && (base.Version != now.Version || base.UID != now.UID) {
		return core.Conflict, core.Snapshot{}
	}
	next := core.Snapshot{Exists: true, UID: now.UID, Content: core.Readable, Record: r, Notes: n}
	if !now.Exists {
		w.uids++
		next.UID = uid(w.uids)
	}
	if needs := now.Notes.Needs; n.Needs == (core.NeedsBoth{}) && needs.Identity == r.Holder && needs.Transitions == r.Transitions {
		next.Notes.Needs = needs // an annotation that those who need one alone carry along
	}
	next.Notes.Nominated = decoded(next)
	if next.Sum = sum(next); now.Exists && next.Sum == now.Sum && next.Notes == now.Notes {
		return core.OK, now
	}
	return core.OK, w.commit(h, next)
}

// commit makes s the object's present state and tells the watchers.
func (w *pairWorld) commit(h core.Half, s core.Snapshot) core.Snapshot {
	w.version += 1 + w.rng.Uint64N(5)
	s.Version = w.version
	w.objects[h] = s
	if w.Trace != nil {
		w.tracef("  object %d: %s, needs %+v, hold for %ds", h, shown(s), s.Notes.Needs, s.Notes.Hold.Seconds)
	}
	for _, p := range w.procs {
		p.show(h, s)
	}
	return s
}

// get is the answer to a read of one object: of one that is not there no version.
func (w *pairWorld) get(h core.Half) core.Snapshot {
	s := w.objects[h]
	if !s.Exists {
		s.Version = 0
	}
	return s
}

// truth is the view of a process that reads both objects right now, and has seen nothing before.
func (w *pairWorld) truth() core.PairSight {
	return core.PairSight{Pair: core.Pair{Primary: w.objects[core.Primary], Secondary: w.objects[core.Secondary]}}
}

// combined is both objects as one lock, as a MultiLock shows them.
func (w *pairWorld) combined(v core.PairSight, self string) core.Snapshot {
	out := v.Combined(w.rules.shown(v.Pair, self))
	if !out.Exists {
		return out
	}
	out.Sum, out.Notes.Needs = v.Primary.Sum*31+v.Secondary.Sum, core.NeedsBoth{}
	out.Notes.Nominated = decoded(out)
	return out
}

// act does one thing to the processes or to their lock.
func (w *pairWorld) act() {
	if len(w.procs) < 2 {
		w.start("", w.revision())
	}
	if len(w.procs) == 0 {
		return
	}
	p := w.procs[w.rng.IntN(len(w.procs))]
	switch w.rng.IntN(14) {
	case 0, 1: // killed; it may come back under its name
		p.end("killed")
		if w.rng.IntN(2) == 0 {
			w.after(w.within(5*time.Second), func() { w.start(p.id, p.key) })
		}
	case 2, 3: // replaced in a rollout
		p.input(core.Input{Kind: core.Stop}, core.Pair{})
		w.start("", p.key)
	case 4, 5:
		w.flipDefault()
	case 6:
		w.tracef("%s is cut off", p.id)
		p.away = w.now.add(w.within(pairPause))
		p.closeWatch(p.away.since(w.now))
	case 7:
		p.closeWatch(w.within(2 * time.Second))
	case 8:
		w.editHalf()
	case 9:
		h := core.Half(w.rng.IntN(2))
		if s := w.objects[h]; s.Exists {
			w.commit(h, s) // others' labels
		}
	case 10, 11:
		w.give(true)
	case 12:
		w.give(false)
	}
}

func (w *pairWorld) flipDefault() {
	w.defaultRevision.Revision = map[string]string{"stable": "canary", "canary": "stable"}[w.defaultRevision.Revision]
	w.tracef("default revision is now %s", w.defaultRevision.Revision)
	for _, p := range w.procs {
		w.after(w.within(2*time.Second), func() { p.input(core.Input{Kind: core.DefaultChanged, Default: w.defaultRevision}, core.Pair{}) })
	}
}

// editHalf harms one of the objects, if every process knows who holds them: nothing is promised
// towards one that never saw the record before it was gone.
func (w *pairWorld) editHalf() {
	h := core.Half(w.rng.IntN(2))
	s := w.objects[h]
	if !s.Exists || !w.allKnow() {
		return
	}
	w.tracef("object %d is harmed", h)
	w.untouched = w.now.add(2*w.timing.lease + 5*time.Second)
	w.oneOf(
		func() { w.commit(h, core.Snapshot{}) },
		func() { s.Content, s.Record, s.Sum = core.Missing, core.Record{}, 1; w.commit(h, s) },
		func() { s.Content, s.Record, s.Sum = core.Unreadable, core.Record{}, w.rng.Uint64(); w.commit(h, s) },
	)
}

// allKnow reports whether every process has seen who holds the locks, and in which term. Where the two
// say different things that is who holds the one that some need alone.
func (w *pairWorld) allKnow() bool {
	alone, other := w.objects[w.single].Record, w.objects[w.single.Other()].Record
	for _, p := range w.procs {
		holds := alone
		if p.both && holds.Holder == "" {
			holds = other
		}
		if r := p.s.Snap.Record; p.s.Known == core.Unread || r.Holder != holds.Holder || r.Transitions != holds.Transitions {
			return false
		}
	}
	return true
}

// beginCalm ends all that goes wrong. An unreadable object keeps those out who need both
// while a leader that needs the other one renews: they report it, and an operator deletes it.
func (w *pairWorld) beginCalm() {
	w.tracef("calm begins")
	for h, s := range w.objects {
		if s.Content == core.Unreadable {
			w.commit(core.Half(h), core.Snapshot{})
		}
	}
	for _, p := range w.procs {
		p.away = 0
		p.openWatch()
		p.input(core.Input{Kind: core.DefaultChanged, Default: w.defaultRevision}, core.Pair{})
	}
	for i := range 10 { // until a leader is there to hear it
		w.after(time.Duration(i)*time.Second, func() { w.give(false) })
	}
}

// checkLeads: in the end one leads, of the default revision if there is a replica of it.
func (w *pairWorld) checkLeads() {
	wanted := false
	for _, p := range w.procs {
		wanted = wanted || p.key == w.defaultRevision.Revision && p.able()
	}
	for _, p := range w.procs {
		if p.work && (!wanted || p.key == w.defaultRevision.Revision) {
			return
		}
	}
	if slices.ContainsFunc(w.procs, (*pairProcess).able) {
		w.violate(Prompt, "nobody leads after five quiet leases, or the wrong one: default %s, objects %s and %s", w.defaultRevision.Revision,
			shown(w.objects[0]), shown(w.objects[1]))
	}
}
