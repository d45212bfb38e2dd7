package core

// claim returns the write that begins a term. It has the own marker only if this candidate may act after its
// acknowledgement.
func (c Config) claim(s State, now ClockReading) (Record, Annotations) {
	old := s.Snap.Record
	stamp := c.ownStamp(s, now.Wall)
	record := Record{
		Holder: c.Self, Key: c.Key, Lease: c.Lease,
		Acquired: stamp, Renewed: stamp, Transitions: s.nextTransition(),
	}
	if s.Snap.Nominated() && !s.Snap.ByCoordinator() && old.Holder == c.Self {
		record.Transitions = old.Transitions // the handover has counted this term
	}
	return record, c.annotations(s, record, now, now.Mono >= c.settledAt(s))
}

// nextTransition returns the transitions of a new term. A new object begins at 0, and an object without a
// record at 1, as with client-go and istiod. If the record was removed, the last readable number counts.
func (s State) nextTransition() int {
	if !s.Snap.Exists {
		return 0
	}
	return after(max(s.Count, s.Snap.Record.Transitions))
}

// maxTransitions is the maximum of a Lease.
const maxTransitions = 1<<31 - 1

// after returns the number of the next term. At the maximum it stays: the guard of the lock would reject a
// lower number. Terms then differ by token, holder and marker.
func after(transitions int) int {
	return max(transitions, min(transitions+1, maxTransitions))
}

// renewal returns the own record with a new renew time.
func (c Config) renewal(s State, now ClockReading) (Record, Annotations) {
	record := s.Snap.Record
	record.Renewed = c.ownStamp(s, now.Wall)
	record.Lease = c.Lease
	record.Key = c.Key
	return record, c.annotations(s, record, now, s.Marked || now.Mono >= s.Earlier.SettleAt)
}

// annotations returns the annotations next to the own record. While settling, the marker of the earlier leader
// stays, because the next holder has to wait for it too.
func (c Config) annotations(s State, record Record, now ClockReading, act bool) Annotations {
	annotations := Annotations{Hold: s.activeHold(record, now.Mono)}
	switch m := s.Snap.Annotations.Marker; {
	case act:
		annotations.Marker = Marker{Identity: c.Self, Transitions: record.Transitions, Handover: c.handsOver(s), Unfit: s.Unfit}
		if s.Phase != Following && s.Snap.Addressed() {
			annotations.Request = s.Snap.Annotations.Request
		}
	case m.Identity != c.Self:
		annotations.Marker = m
	}
	return annotations
}
