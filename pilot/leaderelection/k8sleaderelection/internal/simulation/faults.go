package simulation

import (
	"time"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// planFaults distributes the faults over the time before the calm. A third of them follow another fault within a RetryPeriod.
func (w *world) planFaults() {
	m := w.mode
	begin := 2 * time.Second
	if w.slow.steady {
		begin = 2 * w.timing.validity // after the first term
	}
	var last time.Duration
	for _, kind := range []struct {
		most int
		do   func()
	}{
		{m.Flips, w.flip},
		{m.Edits, w.edit},
		{m.Labels, w.label},
		{m.Pauses, w.pauseSome},
		{m.Clocks, w.clockFault},
		{m.Stops, w.stopSome},
		{m.Outages, w.outage},
		{m.Cuts, w.cutWatch},
		{m.Orders, w.operate},
		{m.Duplicates, w.duplicateSome},
		{m.Unfits, w.unfitSome},
		{m.Refusals, w.refuse},
		{m.Forgers, w.forge},
		{m.Strangers, w.overwrite},
		{m.Wishes, w.changeWish},
		{m.Silences, w.silence},
		{m.Losses, w.loseConnection},
		{m.Deaths, w.killLine},
	} {
		if kind.most == 0 {
			continue
		}
		for range 1 + w.rng.IntN(kind.most) {
			if last == 0 || w.rng.IntN(3) > 0 {
				last = begin + w.within(w.timing.faults-2*begin-w.timing.retry)
			}
			w.after(last+w.within(w.timing.retry), kind.do)
		}
	}
}

// some returns a node. In half of the calls it is the leader.
func (w *world) some() *node {
	if w.rng.IntN(2) == 0 {
		for _, n := range w.nodes {
			if n.leads() {
				return n
			}
		}
	}
	return w.nodes[w.rng.IntN(len(w.nodes))]
}

func (w *world) oneOf(things ...func()) { things[w.rng.IntN(len(things))]() }

func (w *world) flip() {
	if !w.mode.Ranked {
		return
	}
	if w.defaultRevision.Revision == "stable" {
		w.setDefault("canary")
	} else {
		w.setDefault("stable")
	}
}

func (w *world) pauseSome() {
	d := w.within(2 * w.timing.lease)
	w.some().pause(d, w.rng.IntN(2) == 0)
}

// clockFault changes a wall clock. Without a boot clock only the wall clock can detect a suspend, so that one
// is not changed.
func (w *world) clockFault() {
	n := w.some()
	if !n.clocks.hasBoot || n.kind != nil {
		return
	}
	w.tracef("%s: the wall clock jumps or stops", n.name)
	w.oneOf(
		func() { n.clocks.wallZero += int64(w.within(4 * time.Hour)) },
		func() { n.clocks.wallZero -= int64(w.within(4 * time.Hour)) },
		func() { n.clocks.wallZero += int64(w.within(20*time.Second) - 10*time.Second) },
		func() {
			n.clocks.freezeWall(w.now)
			w.after(w.within(60*time.Second), func() { n.thawWall(w.rng.IntN(2) == 0) })
		},
	)
	if n.p != nil && !n.clocks.frozen {
		n.p.troubledAt = w.now
	}
}

func (n *node) thawWall(right bool) {
	n.clocks.thawWall(n.w.now, right)
	if n.p != nil && right {
		n.p.troubledAt = n.w.now
	}
}

// stopSome stops or kills a process and restarts it later, or starts one on an idle node.
func (w *world) stopSome() {
	n := w.some()
	if n.idle() {
		n.start()
		return
	}
	again := w.within(20 * time.Second)
	if w.rng.IntN(3) == 0 {
		again = w.within(500 * time.Millisecond)
	}
	if w.rng.IntN(8) == 0 {
		again = w.within(4 * w.timing.lease)
	}
	w.endsBeforeFirstTerm(n)
	if w.rng.IntN(3) == 0 {
		n.kill("killed")
		w.inherit(n)
	} else {
		n.stop()
	}
	if w.chance(w.mode.Convert) && n != w.nodes[0] && len(w.nodes) < maxNodes {
		n = w.convert(n)
	}
	w.restartLater(n, again)
}

// maxNodes limits the nodes that upgrades add.
const maxNodes = 12

// inherit changes the kind of the next process on the node, which has the same name.
func (w *world) inherit(n *node) {
	if !w.chance(w.mode.Inherit) || n == w.nodes[0] {
		return
	}
	if n.kind != nil {
		n.kind = nil
	} else {
		n.kind = w.peerKind()
	}
}

// convert replaces a node by one of the other kind with another name, as an upgrade or rollback does.
func (w *world) convert(old *node) *node {
	old.retired = true
	n := w.newNode()
	n.key, n.kind = old.key, nil
	if old.kind == nil {
		n.kind = w.peerKind()
	}
	return n
}

// restartLater starts the next process of the node after the last one has ended.
func (w *world) restartLater(n *node, d time.Duration) {
	w.after(d, func() {
		if n.idle() {
			n.start()
		} else if w.faulty() {
			w.restartLater(n, time.Second)
		}
	})
}

// duplicateSome starts a second process with the name of a live one, for a while.
func (w *world) duplicateSome() {
	first := w.some()
	if first.p == nil || first.duplicate || len(w.nodes) >= maxNodes {
		return
	}
	n := w.newNode()
	n.name, n.duplicate = first.name, true
	w.tracef("a duplicate of %v", first.p)
	n.start()
	w.after(w.within(40*time.Second), func() {
		n.retired = true
		w.oneOf(n.stop, func() { n.kill("killed") })
	})
}

func (w *world) outage() {
	w.refuses = float64(w.rng.IntN(3)) / 2
	d := w.within(w.timing.lease * 3 / 2)
	if w.rng.IntN(2) == 0 {
		w.apiDown = w.now.add(d)
		w.tracef("the store is unreachable for %v", d)
		for _, n := range w.nodes {
			w.cutOff(n, d)
		}
		return
	}
	n := w.some()
	n.apiDown = w.now.add(d)
	w.tracef("%s cannot reach the store for %v", n.name, d)
	w.cutOff(n, d)
}

// cutOff breaks the watch of the node for an outage. The process may notice it late.
func (w *world) cutOff(n *node, d time.Duration) {
	if p := n.p; p != nil {
		p.watch++ // no events arrive
		p.cut = true
		w.after(w.within(d), func() { p.closeWatch(w.within(d)) })
	}
}

func (w *world) cutWatch() {
	if n := w.some(); n.p != nil {
		w.tracef("%s: the watch breaks", n.p)
		n.p.closeWatch(w.within(10 * time.Second))
	}
}

// label changes metadata of others.
func (w *world) label() {
	v := w.store.now
	if v.snap.Exists {
		v.foreign++
		w.tracef("foreign label")
		w.store.foreignEdit(v, false)
	}
}

// edit changes the lock as a user might.
func (w *world) edit() {
	if !w.store.now.snap.Exists {
		return
	}
	if w.mode.Peers > 0 {
		w.deleteLock() // other edits break what peers rely on
	} else {
		w.oneOf(w.deleteLock, w.deleteLock, w.emptyRecord, w.removeRecord, w.corruptRecord, w.steal)
	}
	w.tracef("foreign edit: %s", shown(w.store.now.snap))
}

func (w *world) deleteLock() {
	w.store.foreignEdit(view{}, true)
}

// emptyRecord removes the holder. Without a marker, the rest looks like a release.
func (w *world) emptyRecord() {
	v := w.store.now
	if v.snap.Content != record.Readable || v.snap.Record.Holder == "" {
		return
	}
	v.snap.Record.Holder, v.snap.Record.Key = "", ""
	v.snap.Record.Lease = time.Second
	w.byHand(v)
}

// removeRecord removes the record, sometimes with all annotations.
func (w *world) removeRecord() {
	v := w.store.now
	v.snap.Content, v.snap.Record = record.Missing, core.Record{}
	if w.rng.IntN(2) == 0 {
		v.snap.Annotations = core.Annotations{}
	}
	w.byHand(v)
}

func (w *world) corruptRecord() {
	v := w.store.now
	v.snap.Content, v.snap.Record = record.Unreadable, core.Record{Transitions: w.rng.IntN(1e6)}
	v.term, v.released = &term{}, false
	for _, n := range w.nodes {
		v.term.unreadAt = append(v.term.unreadAt, n.clocks.mono(w.now))
	}
	w.store.foreignEdit(v, false)
}

// steal writes a holder that knows no markers, as istiod does. It never renews, and sometimes releases early.
func (w *world) steal() {
	v := w.store.now
	if v.snap.Content != record.Readable {
		return
	}
	r := &v.snap.Record
	r.Holder, r.Key, r.Lease = "peer", "stable", w.timing.lease
	r.Transitions++
	r.Renewed += 1e6
	v.term, v.released = &term{id: "peer"}, false
	w.store.foreignEdit(v, false)
	if w.rng.IntN(2) == 0 {
		w.after(w.within(3*time.Second), func() {
			if v := w.store.now; v.snap.Exists && v.snap.Record.Holder == "peer" {
				w.emptyRecord()
			}
		})
	}
}

// byHand stores a state without a holder. If a marker is left, it shows that a leader acted.
func (w *world) byHand(v view) {
	v.released = false
	if t := w.store.now.term; t != nil && t.q != nil {
		t.wiped = true // as its own release would
	}
	if m := v.snap.Annotations.Marker; m != (core.Marker{}) {
		for t := w.store.now.term; t != nil; t = t.prev {
			t.leftTo = m.Identity
		}
		v.term = &term{emptied: true}
		w.store.foreignEdit(v, false)
		return
	}
	v.term, v.released = nil, v.snap.Content == record.Readable
	w.store.foreignEdit(v, true)
}
