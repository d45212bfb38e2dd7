package core

import "slices"

// PairView is the newest knowledge of one process about each object of a pair. A call does not overwrite newer
// knowledge of another call.
type PairView struct {
	Pair
	changes [2]uint32
	writes  [2][3]ownWrite // latest own writes to each object, newest first; the last one is the stored one
	former  [2]Annotations // request and hold that each object showed before, until the own write to the other object has arrived
}

// ownWrite is the record and annotations of an own write. Others may add annotations.
type ownWrite struct {
	record      Record
	annotations Annotations
}

// Changes returns a number to pass to ApplyRead with the reply to a read that is sent now.
func (v PairView) Changes(h Half) (changes uint32) { return v.changes[h] }

// ApplyRead adds the reply to a read. If nothing changed since it was sent, it counts even with a lower
// version, because a store can be restored.
func (v PairView) ApplyRead(h Half, snap Snapshot, asked uint32) (next PairView, taken bool) {
	if v.changes[h] != asked {
		return v.Apply(h, snap)
	}
	return v.set(h, snap), true
}

// Apply adds an event or the reply to a write. It is ignored if it is older.
func (v PairView) Apply(h Half, snap Snapshot) (next PairView, taken bool) {
	if snap.Version < v.Of(h).Version {
		return v, false
	}
	return v.set(h, snap), true
}

// ShouldShow reports whether an event is current and the other object is known.
func (v PairView) ShouldShow(h Half, snap Snapshot) bool {
	return snap.Version >= v.Of(h).Version && v.changes[Primary] > 0 && v.changes[Secondary] > 0
}

func (v PairView) set(h Half, snap Snapshot) PairView {
	if !snap.Exists {
		snap.Version = max(snap.Version, v.Of(h).Version) // later than all versions before
	}
	v = v.supersede(h, snap)
	*v.Of(h) = snap
	v.changes[h]++
	return v
}

// supersede stores the annotations that the object no longer shows, because the other object may show them
// late.
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

// RecordWrite adds an own write before it is sent. The stored write is kept even if many later writes do not
// arrive.
func (v PairView) RecordWrite(h Half, r Record, n Annotations) PairView {
	newest := v.writes[h][0]
	second := v.writes[h][1]
	last := v.writes[h][2]
	if second.record == v.Of(h).Record {
		last = second
	}
	v.writes[h] = [3]ownWrite{{r, n}, newest, last}
	return v
}

// IsNewerThan reports whether a newer version than these is known.
func (v PairView) IsNewerThan(first, second uint64) bool {
	return v.Primary.Version > first || v.Secondary.Version > second
}

// Combine returns the pair as one lock with the record of h. both: its term is in both objects.
func (v PairView) Combine(h Half, both bool) Snapshot {
	p := v.Primary
	s := v.Secondary
	out := *v.Of(h)
	if !p.Exists && !s.Exists {
		return Snapshot{Version: v.Version()}
	}
	out.Exists = true
	out.UID = v.UID()
	out.Version = v.Version()
	out.Halves = InFirst << h
	out.Floor = max(p.Record.Transitions, s.Record.Transitions)
	if p.Content == Unreadable || s.Content == Unreadable {
		out.Content = Unreadable
		out.Record = Record{}
	}
	if both {
		out.Halves = InFirst | InSecond
		out.Annotations.Request = v.Of(v.annotationFrom(onlyRequest)).Annotations.Request
		out.Annotations.Hold = v.Of(v.annotationFrom(onlyHold)).Annotations.Hold
	}
	return out
}

// onlyRequest and onlyHold select annotations that other writers than the holder may change at any time.
func onlyRequest(n Annotations) Annotations { return Annotations{Request: n.Request} }
func onlyHold(n Annotations) Annotations    { return Annotations{Hold: n.Hold} }

// outdated reports whether the annotation on an object was already replaced on the other object, and the
// holder has not written both since.
func (v PairView) outdated(h Half, only func(Annotations) Annotations) bool {
	is := only(v.Of(h).Annotations)
	return is != (Annotations{}) && is == only(v.former[h.Other()])
}

// annotationFrom returns the object whose annotation of one kind counts, for a term that is in both objects.
// Other writers may change either object.
//
// A change by another writer on one object is newer than own writes on the other. If both objects
// are as own writes left them, the last own write counts. If neither is, the newer object counts. Versions
// alone do not decide, because a label changes the version too. An annotation that the other object has
// already replaced is outdated.
func (v PairView) annotationFrom(only func(Annotations) Annotations) Half {
	ours := func(h Half) bool {
		is := ownWrite{v.Of(h).Record, only(v.Of(h).Annotations)}
		return slices.ContainsFunc(v.writes[h][:], func(l ownWrite) bool { return is == ownWrite{l.record, only(l.annotations)} })
	}
	oursFirst := ours(Primary)
	oursSecond := ours(Secondary)
	switch {
	case oursFirst && oursSecond && v.Primary.Record != v.Secondary.Record:
		return Primary // the second write has not arrived
	case oursFirst && oursSecond:
		return Secondary // with changes by others between the two writes
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
