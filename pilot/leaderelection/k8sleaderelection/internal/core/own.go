package core

import (
	"slices"

	"incumbent.dev/incumbent/internal/record"
)

// Own has the writes in the name of this candidate.
type Own struct {
	Stamps  [4]Stamp // renew stamps of the latest writes, with or without reply
	Unseen  uint8    // number of Stamps that were made for the present version
	Acked   Stamp    // stamp of the newest own record that was seen stored
	Renewed Instant  // send time of the last acknowledged write
	// SentAt is the time at which the latest stamp was first sent with a renewal. It is zero for an acquisition: only its reply begins
	// a term, because a previous process of this identity may have written an equal record.
	SentAt ClockReading
	// AcquireUnknown: an acquire without reply may have been stored.
	AcquireUnknown bool
	// Duplicate: another live process writes with this identity.
	Duplicate bool
}

// sent records the stamp of a write. at is zero for an acquisition.
func (o Own) sent(stamp Stamp, at ClockReading) Own {
	if stamp != o.Stamps[0] {
		o.Stamps = [4]Stamp{stamp, o.Stamps[0], o.Stamps[1], o.Stamps[2]}
		o.SentAt = at
	}
	if at == (ClockReading{}) {
		o.SentAt = at
	}
	o.Unseen = min(o.Unseen+1, uint8(len(o.Stamps)))
	return o
}

// wrote reports whether this process wrote the record. A nomination by another process may have an equal
// stamp.
func (o Own) wrote(snap Snapshot) bool {
	stamp := snap.Record.Renewed
	return stamp != 0 && !snap.Nominated() && (stamp == o.Acked || slices.Contains(o.Stamps[:], stamp))
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
		own.Acked = v.Record.Renewed
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
	if int(s.Own.Unseen) == len(s.Own.Stamps) && s.Own.Stamps[0] != s.Snap.Record.Renewed {
		return s.Own.Stamps[0]
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
	case !mine && s.Own.Stamps[0] <= recorded:
		return recorded.Next(wall, 0)
	case c.Resolution == 0:
		return max(recorded, s.Own.Stamps[0]).Next(wall, record.Second)
	}
	return max(recorded, s.Own.Stamps[0]).Next(wall, c.Resolution)
}
