package core

import (
	"time"

	"incumbent.dev/incumbent/internal/record"
)

// JitterFactor is the factor of client-go: a poll is due after RetryPeriod times 1 to 2.2.
const JitterFactor = 1.2

// Sight is the lock as this candidate sees it.
type Sight struct {
	Known   Knowledge
	Snap    Snapshot
	Since   Since
	Learned uint32 // number of changes of Snap
	Count   int    // last transitions that could be read
	Leader  LastLeader
	PollAt  Instant // next poll
	Watch   bool    // a watch is up
}

// LastLeader is the latest term that was seen with its marker. It remains when another process overwrites the record.
type LastLeader struct {
	Holder      string
	Transitions int
	// Lease is the lease that the leader recorded. It is the first lease that was seen with the marker, because a leader records the
	// same one in its whole term, and another process may write a longer one into the record.
	Lease time.Duration
}

// Knowledge is how current Snap is.
type Knowledge uint8

const (
	// Unread: the lock was not read yet.
	Unread Knowledge = iota
	// Current: Snap is the newest that an event or reply showed.
	Current
	// Stale: a newer version exists. Snap can only be used for a renewal, which is guarded by its version.
	Stale
	// StaleGap: Stale, and a watch began after the last read was sent. Only a read or a renewal that was sent later
	// shows objects that were deleted before the watch.
	StaleGap
)

// Outdated reports whether a newer version exists.
func (k Knowledge) Outdated() bool { return k >= Stale }

// Since has the times at which parts of the lock were first seen as they are.
type Since struct {
	Record  Instant // last change of the record
	Request Instant
	Hold    Instant // last change of the hold
	Former  Instant // last change of the marker of another term; if there is none, of the term or its marker
	Idle    Instant // the lock had no holder that has written, since then

	Preferred Instant // last change of the candidate that a coordinator prefers
	Default   Instant // last change of the default revision
}

// sighting is a snapshot that replaces the known one. It has the differences that several topics need.
type sighting struct {
	Snapshot
	at      Instant
	since   Since
	changed bool // the record was written
	// next: it follows the known lock directly. An own write is guarded by the known version, and a watch shows each change in
	// order. Without a watch, renewals may have been missed.
	next    bool
	follows bool // a coordinator named the holder directly after the known record
}

// sighting compares the snapshot of an input with the known one.
func (c Config) sighting(s *State, in Input) sighting {
	v := sighting{Snapshot: in.Snap, at: in.Now.Mono}
	if v.Record.Holder == c.Self && v.Record.Lease == c.settlingLease() && v.Acting() {
		v.Annotations.Marker = Marker{} // forged: a previous process of this candidate held the lock, and did not act
	}
	v.Annotations.Nominated = c.nominationIn(s.Snap, v.Snapshot)
	if !v.Exists {
		// So a late event from before the deletion differs from a new object.
		v.Version = max(v.Version, s.Snap.Version)
	}
	// Another process can write the same unreadable record again after a term that this candidate did not see.
	again := v.Exists && v.Content == record.Unreadable && v.Version != s.Snap.Version
	v.changed = s.Known == Unread || !record.SameRecord(s.Snap, v.Snapshot) || v.Version < s.Snap.Version || again
	v.next = in.Kind == Seen && s.Known == Current || v.Held() && v.Record.Holder == c.Self && s.Own.wrote(v.Snapshot)
	v.follows = v.next && v.ByCoordinator() && v.UID == s.Snap.UID
	v.since = c.since(s, v)
	return v
}

// since returns the times of the changes. Only a change of the record restarts the lease of its holder.
func (c Config) since(s *State, v sighting) Since {
	since := s.Since
	if v.Idle() && (s.Known == Unread || !s.Snap.Idle()) {
		since.Idle = v.at
		if s.Snap.Held() {
			since.Idle = min(v.at, c.ExpiresAt(s))
		}
	}
	if v.changed {
		since.Record = v.at
	}
	if v.Preferred != s.Snap.Preferred {
		since.Preferred = v.at
	}
	if v.Annotations.Request.Renewed(s.Snap.Annotations.Request) {
		since.Request = v.at
	}
	if v.Annotations.Hold != s.Snap.Annotations.Hold {
		since.Hold = v.at
	}
	newTerm := !record.SameHolder(s.Snap, v.Snapshot) || s.Snap.Record.Transitions != v.Record.Transitions
	if s.Snap.Annotations.Marker != v.Annotations.Marker || v.Version < s.Snap.Version || !hasFormer(s.Snap, c.Self) && (newTerm || hasFormer(v.Snapshot, c.Self)) {
		since.Former = v.at
	}
	return since
}

// observe replaces the known snapshot.
func (s Sight) observe(v sighting) Sight {
	if v.Exists && v.Content == record.Readable {
		s.Count = v.Record.Transitions
	}
	if s.Known != StaleGap {
		s.Known = Current
	}
	if r := v.Record; v.Acting() && !r.IsTerm(s.Leader.Holder, s.Leader.Transitions) {
		s.Leader = LastLeader{Holder: r.Holder, Transitions: r.Transitions, Lease: r.Lease}
	}
	s.Snap = v.Snapshot
	s.Since = v.since
	s.Learned++
	return s
}

// nominationIn returns the nomination in next, which follows s. Any user with the verb patch can write the annotation, and peers
// never remove it. So it counts only together with its record, and ends with any change of the record:
//
//   - The record has the lease of a nomination. The nominee may have another lease in its configuration. It only excludes
//     the leases of its own records, which a previous process may have written.
//   - The nomination was written together with the record, and the record is the same since.
//   - An annotation that did not count earlier belongs to an earlier term, unless a hold of an operator names the new one.
func (c Config) nominationIn(s, next Snapshot) Nomination {
	was := s.Annotations.Nominated
	is := next.Annotations.Nominated
	named := next.Annotations.Hold.Reason == record.HoldForTransfer && next.Annotations.Hold.Holder == is.Identity
	switch {
	case is == Nomination{} || next.Acting():
		return Nomination{}
	case s.UID == next.UID && s.Held() && s.Record == next.Record && was.Identity != is.Identity: // it appeared later
		return ended(is)
	case is.Uncounted:
		return is
	case next.Record.Holder != c.Self && next.Record.Lease != c.nominationLease(),
		next.Record.Holder == c.Self && (next.Record.Lease == c.Lease || next.Record.Lease == c.settlingLease()):
		return ended(is)
	case record.SameHolder(s, next) && s.Record.Transitions == next.Record.Transitions && (s.Record != next.Record || !s.Nominated()):
		return ended(is)
	case s.UID == next.UID && was.Identity == is.Identity && !s.Nominated() && !named && was.Transitions <= is.Transitions:
		return was
	}
	return is
}

// nominationLease is the lease in a record that names a nominee. It differs from the own lease, so that the first write of a peer
// changes the record even within the same second, and so that no edit of annotations makes another record a nomination.
func (c Config) nominationLease() time.Duration { return c.Lease + time.Second }

// settlingLease is the lease in a record while its holder settles. It differs from the lease of a leader, so that no edit of
// annotations makes the holder a leader for its next process.
func (c Config) settlingLease() time.Duration { return c.Lease + 2*time.Second }

// ownLease is the lease in an own record.
func (c Config) ownLease(act bool) time.Duration {
	if act {
		return c.Lease
	}
	return c.settlingLease()
}

// ended returns a nomination of no term. It keeps the name, because the annotation may remain on the lock.
func ended(n Nomination) Nomination { return Nomination{Identity: n.Identity, Transitions: noTerm} }

// noTerm is less than the transitions of each record.
const noTerm = -1

// hasFormer reports whether there is a marker of another term and another candidate. The own marker does not count: a
// process ends its run functions before it campaigns again.
func hasFormer(s Snapshot, self string) bool {
	return s.Former() != "" && s.Former() != self
}

// watching processes the begin or the end of a watch.
func (c Config) watching(s State, in Input) State {
	s.Watch = in.Kind == Watching
	if s.Watch && in.Gap && s.Known != Unread {
		s.Known = StaleGap
		s.Flight.BeforeGap = s.Flight.Op != NoOp
	}
	s.Sight = c.pollAfter(s.Sight, in)
	return s
}

// pollAfter sets the next poll. With a watch it is due after two silent RetryPeriods, because a live holder
// would have written.
func (c Config) pollAfter(s Sight, in Input) Sight {
	wait := c.Retry + time.Duration(float64(c.Retry)*JitterFactor*float64(in.Jitter)/256)
	s.PollAt = in.Now.Mono.After(wait)
	if s.Watch {
		s.PollAt = s.PollAt.After(c.Retry)
	}
	return s
}

// outdated reports whether a watch event is older than the known snapshot.
func (s *Sight) outdated(snap Snapshot) bool {
	if s.Known == Unread {
		return false
	}
	return snap.Version < s.Snap.Version || snap.Version == s.Snap.Version && !s.Snap.Exists
}

// Shows reports whether the snapshot of an input replaces the known one. A reply to a call that was sent after the last change is
// newer, even with a lower version: a store can be restored.
func (s *State) Shows(in Input) bool {
	if in.Kind == Seen {
		return !s.outdated(in.Snap)
	}
	return in.Kind == Replied && in.Result == OK && (in.Snap.Version >= s.Snap.Version || s.Flight.Learned == s.Learned)
}

// leaderLease returns how long the leader of a term may act after its last write: the lease that it recorded, or the own lease if
// that is longer or if the term was never seen with its marker.
func (c Config) leaderLease(s *Sight, holder string, transitions int) time.Duration {
	if l := s.Leader; l.Holder == holder && l.Transitions == transitions {
		return record.LongerLease(c.Lease, l.Lease)
	}
	return c.Lease
}

// lease returns the longer of the recorded and the own lease, within a bound.
func (c Config) lease(r Record) time.Duration { return record.LongerLease(c.Lease, r.Lease) }

// ExpiresAt returns the expiry of the recorded lease by the own clock.
func (c Config) ExpiresAt(s *State) Instant {
	return s.Since.Record.After(c.lease(s.Snap.Record))
}

// ActsUntil returns until when the recorded holder acts. Zero: it does not act. For this candidate the phase
// counts.
func (c Config) ActsUntil(s *State) Instant {
	if s.Snap.Idle() || s.Snap.Record.Holder == c.Self && s.Phase != Leading && s.Phase != Draining {
		return 0
	}
	return c.ExpiresAt(s)
}

// read reads the lock when the back-off allows it.
func (c Config) read(s *State, now ClockReading, a Action, why Reason) Action {
	if now.Mono < s.Effort.Reads.Next {
		return a.wake(s.Effort.Reads.Next).withReason(Retrying)
	}
	a.Op = Read
	return a.withReason(why)
}
