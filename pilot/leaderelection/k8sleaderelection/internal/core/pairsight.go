package core

import "slices"

// PairSight is the newest that one process knows of each object of a pair, from whatever
// call: what one call shows must not take back what another has shown.
type PairView struct {
	Pair
	changes [2]uint32
	writes  [2][3]ownWrite // by its latest writes to each, whether they have arrived or not: the newest first, and in the last place the one that stands
	former  [2]Annotations // the request and the hold that each showed before those it shows, until our write of the other has arrived
}

// left is the record and notes that a write leaves on an object; others may add to them.
type ownWrite struct {
	record      Record
	annotations Annotations
}

// Asked is to be given back with the answer to a read that is sent now.
func (v PairView) Changes(h Half) (changes uint32) { return v.changes[h] }

// Read takes in the answer to a read. One that was sent after all that is known counts even if
// it is older: a store can be restored from a backup. taken is false if it does not count.
func (v PairView) ApplyRead(h Half, snap Snapshot, asked uint32) (next PairView, taken bool) {
	if v.changes[h] != asked {
		return v.Apply(h, snap)
	}
	return v.set(h, snap), true
}

// Stored takes in the answer to a write, or any other that is not to replace newer news.
func (v PairView) Apply(h Half, snap Snapshot) (next PairView, taken bool) {
	if snap.Version < v.Of(h).Version {
		return v, false
	}
	return v.set(h, snap), true
}

// Shows reports whether a watch event that was taken in is to be shown: it is not outdated,
// and the other object is known.
func (v PairView) ShouldShow(h Half, snap Snapshot) bool {
	return snap.Version >= v.Of(h).Version && v.changes[Primary] > 0 && v.changes[Secondary] > 0
}

func (v PairView) set(h Half, snap Snapshot) PairView {
	if !snap.Exists {
		snap.Version = max(snap.Version, v.Of(h).Version) // later than all that was there
	}
	v = v.supersede(h, snap)
	*v.Of(h) = snap
	v.changes[h]++
	return v
}

// supersede keeps what the object no longer shows, for as long as the other may show it late.
func (v PairView) supersede(h Half, snap Snapshot) PairView {
	old := v.Of(h)
	if snap.Record == v.writes[h][0].record && snap.Record != old.Record {
		v.former[h.Other()] = Annotations{}
	}
	if v.changes[h] > 0 && old.Annotations.Request != snap.Annotations.Request {
		v.former[h].Request = old.Annotations.Request
	}
	if v.changes[h] > 0 && old.Annotations.Hold != snap.Annotations.Hold {
		v.former[h].Hold = old.Annotations.Hold
	}
	return v
}

// Sends notes a write to an object before it is sent. The one that stands is not forgotten for
// writes that have not arrived, however many there are: a label or a hold that others put beside it
// would make it look like theirs.
func (v PairView) RecordWrite(h Half, r Record, n Annotations) PairView {
	newest, second, last := v.writes[h][0], v.writes[h][1], v.writes[h][2]
	if second.record == v.Of(h).Record {
		last = second
	}
	v.writes[h] = [3]ownWrite{{r, n}, newest, last}
	return v
}

// Overtaken reports whether something newer than these versions is known of either object.
func (v PairView) IsNewerThan(first, second uint64) bool {
	return v.Primary.Version > first || v.Secondary.Version > second
}

// Combined is the pair as one lock that shows the record of h. both: its term stands in both objects.
func (v PairView) Combine(h Half, both bool) Snapshot {
	p, s, out := v.Primary, v.Secondary, *v.Of(h)
	if !p.Exists && !s.Exists {
		return Snapshot{Version: v.Version()}
	}
	out.Exists, out.UID, out.Version, out.Halves = true, v.UID(), v.Version(), InFirst<<h
	out.Floor = max(p.Record.Transitions, s.Record.Transitions)
	if p.Content == Unreadable || s.Content == Unreadable {
		out.Content, out.Record = Unreadable, Record{}
	}
	if both {
		out.Halves = InFirst | InSecond
		out.Annotations.Request = v.Of(v.annotationFrom(onlyRequest)).Annotations.Request
		out.Annotations.Hold = v.Of(v.annotationFrom(onlyHold)).Annotations.Hold
	}
	return out
}

// onlyRequest and onlyHold are one kind of note each that others than the holder write, at any time.
func onlyRequest(n Annotations) Annotations { return Annotations{Request: n.Request} }
func onlyHold(n Annotations) Annotations    { return Annotations{Hold: n.Hold} }

// outdated reports whether the note that an object shows was replaced already: the other
// object has shown it, too, before what it shows now, and the term's holder has not written both since.
func (v PairView) outdated(h Half, only func(Annotations) Annotations) bool {
	is := only(v.Of(h).Annotations)
	return is != (Annotations{}) && is == only(v.former[h.Other()])
}

// noteFrom says which object's note of one kind counts in a term that stands in both. It judges a note that others than the holder write, and on either object: a candidate of
// the first step knows no place but the primary. Where both have one, the newer object's counts;
// but what others wrote to the one is newer than what the holder's own write has left on the
// other, whether that came before its writes of both, between them, or the second of them never
// arrived. If the holder has left both as they are, its last write tells, also of what it took
// away. Versions do not tell what is whose: the answer to a write that has arrived may be lost,
// and a label makes a version too. And what the other object showed before what it shows was
// written to both: it only arrives late, and what has replaced it there is newer.
func (v PairView) annotationFrom(only func(Annotations) Annotations) Half {
	ours := func(h Half) bool {
		is := ownWrite{v.Of(h).Record, only(v.Of(h).Annotations)}
		return slices.ContainsFunc(v.writes[h][:], func(l ownWrite) bool { return is == ownWrite{l.record, only(l.annotations)} })
	}
	oursFirst, oursSecond := ours(Primary), ours(Secondary)
	switch {
	case oursFirst && oursSecond && v.Primary.Record != v.Secondary.Record:
		return Primary // the second write has not arrived
	case oursFirst && oursSecond:
		return Secondary // with what others wrote there between the two
	case only(v.Secondary.Annotations) == Annotations{}:
		return Primary
	case only(v.Primary.Annotations) == Annotations{} || oursFirst && !v.outdated(Secondary, only):
		return Secondary
	case oursFirst || oursSecond && !v.outdated(Primary, only):
		return Primary
	case oursSecond:
		return Secondary
	}
	return v.newer()
}
