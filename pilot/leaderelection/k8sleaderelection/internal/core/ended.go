package core

import "incumbent.dev/incumbent/internal/record"

// EndedTerm is a term in which a process acted before the process ended.
type EndedTerm struct {
	Holder      string
	UID         string
	Transitions int
	// Acquired is the acquire time in the record. It differs between terms even at the maximum of Transitions.
	Acquired Stamp
}

// Acting returns the present term if this process may act in it, or has acted in it.
func (c Config) Acting(s State) (EndedTerm, bool) {
	t := EndedTerm{Holder: c.Self, UID: s.Term.UID, Transitions: s.Term.Transitions, Acquired: s.Snap.Record.Acquired}
	return t, s.Marked && c.ownsTerm(s) && t.Left(s.Snap) == HolderDied
}

// Left returns HolderDied if the snapshot still has the term, so that a witness may release the lock after the process has
// ended. Otherwise it returns the reason why not. A holder without a marker may be settling: then an earlier leader may act.
func (t EndedTerm) Left(s Snapshot) Reason {
	switch r := s.Record; {
	case !s.Exists || s.UID != t.UID:
		return LockDeleted
	case s.Content == record.Unreadable:
		return RecordUnreadable
	case s.Content == record.Missing || r.Holder == "":
		return RecordEmptied
	case !r.IsTerm(t.Holder, t.Transitions) || r.Acquired != t.Acquired:
		return Superseded
	case !s.Acting():
		return EarlierHolderMayAct
	}
	return HolderDied
}
