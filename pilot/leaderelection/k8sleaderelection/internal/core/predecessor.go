package core

// A lock that earlier versions hold by other rules, the predecessor, guards what a newer lock guards now. The leaders of
// the newer ones, its successors, act while they hold it as well, all of them together: under the name of no process, so that
// nobody of an earlier version takes it for its own, and none of the successors waits for another. A successor wins it
// as any candidate does. While an earlier holder may still act, it stands there under its own name, with a note that nobody acts
// by that, because others would otherwise act with it at once; then it writes the record that all keep. Whoever finds that
// record keeps it with the others, by a write of its own that brings its cover, once all that it has seen itself of earlier
// holders is over: who wrote the record may not have seen them. Nobody releases it: when the last has ended, it lapses.
// One that does not lead its newer lock observes this one, as one that is unfit does: it has to know them when it leads.

// Successors is the holder of a lock that is kept as a predecessor.
const Successors = "incumbent-successors"

// bySuccessors reports whether the record is the one that all successors keep.
func (s Snapshot) bySuccessors() bool {
	return s.Successor && s.Held() && s.Record.Holder == Successors
}

// writesForSuccessors reports whether the next record that we write is the one that all successors keep.
func (c Config) writesForSuccessors(s State, now Instant) bool {
	return c.Successor && (s.Snap.bySuccessors() || now >= c.settledAt(s))
}

// successorsRecord makes a record that is our own one that all successors keep. A second above the recorded
// stamp is enough for those who go by the time of its last change, as it is for ours.
func (c Config) successorsRecord(s State, r Record) (Record, Annotations) {
	r.Holder = Successors
	if s.Snap.bySuccessors() {
		r.Acquired = s.Snap.Record.Acquired
		r.Transitions = s.Snap.Record.Transitions
	}
	if d := s.Default; d.Synced && d.Revision != "" {
		r.Key = d.Revision // which nobody outranks: an istiod of a higher rank would take the lock at once
	}
	return r, Annotations{Successor: true}
}

// Resumed is the state with which one that takes part again begins: its knowledge of the lock, and of who held it, be it
// from a time in which it kept the lock or from one in which it only looked on.
func (s State) Resumed() State {
	if s.Known != Unread {
		s.Known = Stale
	}
	s.Own.AcquireUnknown = false
	return State{
		Known: s.Known, Snap: s.Snap, Since: s.Since, Learned: s.Learned, Count: s.Count,
		Default: s.Default, Earlier: s.Earlier, Displaced: s.Displaced, Own: s.Own,
	}
}
