package core

// PairSight is the newest that one process knows of each object of a pair, from whatever
// call: what one call shows must not take back what another has shown.
type PairSight struct {
	Pair
	known   [2]bool
	changes [2]uint32
	wrote   [2]uint64 // the versions that its latest write of both made
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
	if h == Primary {
		v.Primary = snap
	} else {
		v.Secondary = snap
	}
	v.known[h] = true
	v.changes[h]++
	return v
}

// Wrote notes which versions a write of both has made.
func (v PairSight) Wrote(first, second uint64) PairSight {
	v.wrote = [2]uint64{first, second}
	return v
}

// Overtaken reports whether something newer than these versions is known of either object.
func (v PairSight) Overtaken(first, second uint64) bool {
	return v.Primary.Version > first || v.Secondary.Version > second
}

// echo reports whether the object is as this process's latest write of both left it: what
// others had to say since is not there.
func (v PairSight) echo(h Half) bool { return v.Of(h).Version <= v.wrote[h] }

// NoteFrom says, of a note that others than the holder write, which object's counts in a term
// that stands in both: a candidate of the first step knows no place but the primary. Where
// both have one, the newer object's counts; but what was written to the primary between the
// holder's two writes is newer than the second of them.
func (v PairSight) NoteFrom(inPrimary, inSecondary bool) Half {
	between := v.echo(Secondary) && !v.echo(Primary)
	if !inPrimary || inSecondary && v.newer() == Secondary && !between {
		return Secondary
	}
	return Primary
}
