package core

// claim is the write that begins a term. It carries our marker only when we may act
// on its acknowledgement.
func (c Config) claim(s State, now ClockReading) (Record, Annotations) {
	old := s.Snap.Record
	stamp := s.ownStamp(now.Wall)
	record := Record{
		Holder: c.Self, Key: c.Key, Lease: c.Lease,
		Acquired: stamp, Renewed: stamp, Transitions: s.nextTransition(),
	}
	if s.Snap.Nominated() && !s.Snap.ByCoordinator() && old.Holder == c.Self && old.Transitions >= s.Snap.Floor {
		record.Transitions = old.Transitions // the handover has counted this term
	}
	if c.writesForSuccessors(s, now.Mono) {
		return c.successorsRecord(s, record)
	}
	return record, c.annotations(s, record, now, now.Mono >= c.settledAt(s))
}

// nextTransition counts a new term. A lock without a record goes on from the last
// that could be read; a new object begins at 0, and one that others made without a record
// at 1, as client-go's and istiod's do.
func (s State) nextTransition() int {
	if !s.Snap.Exists {
		return 0
	}
	return after(max(s.Count, s.Snap.Record.Transitions, s.Snap.Floor))
}

// maxTransitions is the most that a Lease can carry.
const maxTransitions = 1<<31 - 1

// after is the number of the term that follows. At the maximum, and beyond it, which only
// a manual edit can write into a ConfigMap, the count stays: a lower one would be refused
// by a guard of the lock, and a higher one has no room. Terms are told apart by their
// token then, and by holder and marker as ever.
func after(transitions int) int {
	return max(transitions, min(transitions+1, maxTransitions))
}

// renewal is our own record again, changed in its renew time alone.
func (c Config) renewal(s State, now ClockReading) (Record, Annotations) {
	record := s.Snap.Record
	record.Renewed, record.Lease, record.Key = s.ownStamp(now.Wall), c.Lease, c.Key
	if c.Successor && s.Snap.bySuccessors() {
		return c.successorsRecord(s, record)
	}
	return record, c.annotations(s, record, now, !c.Successor && (s.Marked || now.Mono >= s.Earlier.SettleAt))
}

// notes are our annotations beside the record. While settling, the marker of whoever
// we wait for stays, whether it was left behind before us or by us: the holder after
// us has to wait for it too.
func (c Config) annotations(s State, record Record, now ClockReading, act bool) Annotations {
	notes := Annotations{Hold: s.activeHold(record, now.Mono), Successor: c.Successor}
	switch m := s.Snap.Annotations.Marker; {
	case act:
		notes.Marker = Marker{Identity: c.Self, Transitions: record.Transitions, Handover: c.handsOver(s), Unfit: s.Unfit}
		if s.Phase != Following && s.Snap.Addressed() {
			notes.Request = s.Snap.Annotations.Request
		}
	case m.Identity != c.Self:
		notes.Marker = m
	}
	return notes
}
