package core

// PairSight is the newest that one process knows of each object of a pair, from whatever
// call: what one call shows must not take back what another has shown.
type PairSight struct {
	Pair
	known   [2]bool
	changes [2]uint32
	left    [2][2]left // by its latest two writes to each, whether they have arrived or not
	former  [2]Notes   // the request and the hold that each showed before those it shows, until our write of the other has arrived
}

// left is the record and notes that a write leaves on an object; others may add to them.
type left struct {
	record Record
	notes  Notes
}

// Asked is to be given back with the answer to a read that is sent now.
func (v PairSight) Asked(h Half) (changes uint32) { return v.changes[h] }

// Read takes in the answer to a read. One that was sent after all that is known counts even if
// it is older: a store can be restored from a backup. taken is false if it does not count.
func (v PairSight) Read(h Half, snap Snapshot, asked uint32) (next PairSight, taken bool) {
	if v.changes[h] != asked {
		return v.Stored(h, snap)
	}
	return v.take(h, snap), true
}

// Stored takes in the answer to a write, or any other that is not to replace newer news.
func (v PairSight) Stored(h Half, snap Snapshot) (next PairSight, taken bool) {
	if snap.Version < v.Of(h).Version {
		return v, false
	}
	return v.take(h, snap), true
}

// Shows reports whether a watch event that was taken in is to be shown: it is not outdated,
// and the other object is known.
func (v PairSight) Shows(h Half, snap Snapshot) bool {
	return snap.Version >= v.Of(h).Version && v.known[Primary] && v.known[Secondary]
}

func (v PairSight) take(h Half, snap Snapshot) PairSight {
	if !snap.Exists {
		snap.Version = max(snap.Version, v.Of(h).Version) // later than all that was there
	}
	v = v.supersede(h, snap)
	if h == Primary {
		v.Primary = snap
	} else {
		v.Secondary = snap
	}
	v.known[h] = true
	v.changes[h]++
	return v
}

// supersede keeps what the object no longer shows, for as long as the other may show it late.
func (v PairSight) supersede(h Half, snap Snapshot) PairSight {
	old := v.Of(h)
	if snap.Record == v.left[h][0].record && snap.Record != old.Record {
		v.former[h.Other()] = Notes{}
	}
	if v.known[h] && old.Notes.Request != snap.Notes.Request {
		v.former[h].Request = old.Notes.Request
	}
	if v.known[h] && old.Notes.Hold != snap.Notes.Hold {
		v.former[h].Hold = old.Notes.Hold
	}
	return v
}

// Sends notes a write to an object before it is sent.
func (v PairSight) Sends(h Half, r Record, n Notes) PairSight {
	v.left[h] = [2]left{{r, n}, v.left[h][0]}
	return v
}

// Overtaken reports whether something newer than these versions is known of either object.
func (v PairSight) Overtaken(first, second uint64) bool {
	return v.Primary.Version > first || v.Secondary.Version > second
}

// OutdatedRequest reports whether the request that an object shows was replaced already: the other
// object has shown it, too, before what it shows now, and the term's holder has not written both since.
func (v PairSight) OutdatedRequest(h Half) bool {
	return outdated(v, h, func(n Notes) Request { return n.Request })
}

// OutdatedHold reports the same of a hold.
func (v PairSight) OutdatedHold(h Half) bool {
	return outdated(v, h, func(n Notes) Hold { return n.Hold })
}

func outdated[T comparable](v PairSight, h Half, of func(Notes) T) bool {
	var none T
	is := of(v.Of(h).Notes)
	return is != none && is == of(v.former[h.Other()])
}

// RequestFrom says which object's request counts in a term that stands in both.
func (v PairSight) RequestFrom() Half { return noteFrom(v, func(n Notes) Request { return n.Request }) }

// HoldFrom says which object's hold counts in a term that stands in both.
func (v PairSight) HoldFrom() Half { return noteFrom(v, func(n Notes) Hold { return n.Hold }) }

// noteFrom judges a note that others than the holder write, and on either object: a candidate of
// the first step knows no place but the primary. Where both have one, the newer object's counts;
// but what others wrote to the one is newer than what the holder's own write has left on the
// other, whether that came before its writes of both, between them, or the second of them never
// arrived. If the holder has left both as they are, its last write tells, also of what it took
// away. Versions do not tell what is whose: the answer to a write that has arrived may be lost,
// and a label makes a version too. And what the other object showed before what it shows was
// written to both: it only arrives late, and what has replaced it there is newer.
func noteFrom[T comparable](v PairSight, of func(Notes) T) Half {
	var none T
	first, second := of(v.Primary.Notes), of(v.Secondary.Notes)
	ours := func(h Half) bool {
		s, left := v.Of(h), v.left[h]
		return s.Record == left[0].record && of(s.Notes) == of(left[0].notes) || s.Record == left[1].record && of(s.Notes) == of(left[1].notes)
	}
	oursFirst, oursSecond := ours(Primary), ours(Secondary)
	switch {
	case oursFirst && oursSecond && v.Primary.Record != v.Secondary.Record:
		return Primary // the second write has not arrived
	case oursFirst && oursSecond:
		return Secondary // with what others wrote there between the two
	case second == none:
		return Primary
	case first == none || oursFirst && !outdated(v, Secondary, of):
		return Secondary
	case oursFirst || oursSecond && !outdated(v, Primary, of):
		return Primary
	case oursSecond:
		return Secondary
	}
	return v.newer()
}
