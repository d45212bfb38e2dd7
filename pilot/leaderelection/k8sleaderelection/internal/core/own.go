package core

import (
	"slices"

	"incumbent.dev/incumbent/internal/record"
)

// Write identifies a record that was written. A later process of this identity can use an equal stamp in another term.
type Write struct {
	Renewed     Stamp
	Transitions int
}

func writeOf(r Record) Write { return Write{r.Renewed, r.Transitions} }

// Own has the writes in the name of this candidate.
type Own struct {
	Writes  [4]Write // latest writes, with or without reply
	Again   bool     // the latest write was sent twice, so the earlier attempt may have been stored
	Unseen  uint8    // number of Writes that were made for the present version
	Acked   Write    // newest own record that was seen stored
	Renewed Instant  // send time of the last acknowledged write
	// SentAt is the time at which the latest write was first sent with a renewal. It is zero for an acquisition: only its reply begins
	// a term, because a previous process of this identity may have written an equal record.
	SentAt ClockReading
	// AcquireUnknown: an acquire without reply may have been stored.
	AcquireUnknown bool
	// Duplicate: another live process writes with this identity.
	Duplicate bool
}

// sent remembers a write. at is zero for an acquisition.
func (o Own) sent(r Record, at ClockReading) Own {
	o.Again = writeOf(r) == o.Writes[0]
	if !o.Again {
		o.Writes = [4]Write{writeOf(r), o.Writes[0], o.Writes[1], o.Writes[2]}
		o.SentAt = at
	}
	if at == (ClockReading{}) {
		o.SentAt = at
	}
	o.Unseen = min(o.Unseen+1, uint8(len(o.Writes)))
	return o
}

// rejected forgets the latest write, which was not stored. Another process of this identity can decide on the same version in the
// same second. It then writes an equal record, which is not an own one.
func (o Own) rejected(r Record) Own {
	if o.Again || writeOf(r) != o.Writes[0] {
		return o
	}
	o.Writes = [4]Write{o.Writes[1], o.Writes[2], o.Writes[3]}
	o.SentAt = ClockReading{} // it was the time of the rejected write
	o.Unseen = max(o.Unseen, 1) - 1
	if o.Acked == writeOf(r) {
		o.Acked = Write{}
	}
	return o
}

// wrote reports whether this process wrote the record. A nomination by another process may have an equal
// stamp.
func (o Own) wrote(snap Snapshot) bool {
	w := writeOf(snap.Record)
	return w.Renewed != 0 && !snap.Nominated() && (w == o.Acked || slices.Contains(o.Writes[:], w))
}

// observeOwn recognizes own records, and records of another process with this identity.
func (c Config) observeOwn(s *State, v sighting) Own {
	own := s.Own
	if s.Known != Unread && v.changed {
		own.Duplicate = c.isDuplicate(s, v.Snapshot)
	}
	if s.Snap.Version != v.Version {
		own.Unseen = 0
	}
	if v.Held() && v.Record.Holder == c.Self && own.wrote(v.Snapshot) {
		own.Acked = writeOf(v.Record)
	}
	own.AcquireUnknown = false
	return own
}

// isDuplicate reports whether another live process writes records with this identity.
func (c Config) isDuplicate(s *State, next Snapshot) bool {
	// Only a process with this identity writes its marker.
	appeared := next.Acting() && next.Version >= s.Snap.Version
	changed := record.SameHolder(s.Snap, next) && s.Snap.Record != next.Record && !next.Nominated()
	return next.Held() && next.Record.Holder == c.Self && !s.Own.wrote(next) && (s.Own.Duplicate || changed || appeared)
}

// ownStamp returns the stamp for an own record. Only one unanswered write can be stored for each version.
// After as many tries as are remembered, the last stamp is used again, so that the stored record is
// recognized.
func (c Config) ownStamp(s *State, wall int64) Stamp {
	if int(s.Own.Unseen) == len(s.Own.Writes) && s.Own.Writes[0].Renewed != s.Snap.Record.Renewed {
		return s.Own.Writes[0].Renewed
	}
	return c.nextStamp(s, wall)
}

// nextStamp returns a stamp that is not below the recorded one and all own ones. A write that changes nothing
// else needs a greater one, because a write that changes no byte is not stored. After a restore, equal bytes would
// look unchanged to other candidates.
func (c Config) nextStamp(s *State, wall int64) Stamp {
	recorded := s.Snap.Record.Renewed
	mine := s.Snap.Record.Holder == c.Self && !s.Snap.Nominated()
	switch {
	case !mine && s.Own.Writes[0].Renewed <= recorded:
		return recorded.Next(wall, 0)
	case c.Resolution == 0:
		return max(recorded, s.Own.Writes[0].Renewed).Next(wall, record.Second)
	}
	return max(recorded, s.Own.Writes[0].Renewed).Next(wall, c.Resolution)
}
