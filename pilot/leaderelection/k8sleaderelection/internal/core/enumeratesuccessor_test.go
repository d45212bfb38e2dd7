package core

import "testing"

// successorSnapshots is a predecessor's lock of each kind that its successors meet.
func successorSnapshots() map[string]Snapshot {
	all := map[string]Snapshot{}
	for name, of := range map[string]string{
		"old, free": "free", "old, absent": "absent", "old, lower, hands over": "lower, hands over", "old, unmarked": "equal, unmarked",
		"old, mine": "mine, unmarked", "old, mine, other's marker": "mine, other's marker", "old, nominated me": "nominated me",
	} {
		all[name] = testSnapshots()[of]
	}
	kept := testSnapshots()["equal, unmarked"]
	kept.Record.Holder, kept.Successor = Successors, true
	all["old, kept"] = kept
	// By its name alone it is anybody's.
	kept.Successor = false
	all["old, under the successors' name"] = kept
	return all
}

// enumerateSuccessor is enumerate for one that keeps the lock with others.
func (c Config) enumerateSuccessor(t *testing.T, snap Snapshot) transitions {
	c.Successor = true
	return c.enumerate(t, snap)
}

// wrongKept says what about a write of the record that all keep must not be.
func (c Config) wrongKept(s State, a Action) string {
	key := c.Key
	if s.Default.Revision != "" {
		key = s.Default.Revision
	}
	switch {
	case !c.Successor:
		return "the successors' record, and one's lock is its own"
	case a.Base != s.Snap || s.Known != Current && !(a.Op == Renew && s.Known.Outdated() && s.Effort.Reads.Fails > 0):
		return "a write that is not decided on the newest snapshot"
	case a.Op != Acquire && a.Op != Renew:
		return "a kept record that nobody keeps"
	case a.Record.Holder != Successors || a.Record.Key != key || a.Record.Lease != c.Lease || a.Notes != Notes{Successor: true}:
		return "a kept record that others would not take for one"
	case a.Record.Renewed == s.Snap.Record.Renewed:
		return "a write that changes nothing"
	case s.Snap.bySuccessors() && (a.Record.Transitions != s.Snap.Record.Transitions || a.Record.Acquired != s.Snap.Record.Acquired):
		return "a term begins beside those who keep the lock"
	case !s.Snap.bySuccessors() && a.Record.Transitions <= s.Snap.Record.Transitions && s.Snap.Exists && !s.Snap.Nominated():
		return "a term that is not counted: others would not know that its holder was waited for"
	case !s.Snap.bySuccessors() && testNow.Mono < c.settledAt(s):
		return "others would act at once, and an earlier holder may act"
	case a.Op == Acquire && s.Unfit && s.Phase == Following:
		return "one that is unfit campaigns"
	case a.Op == Acquire && (s.Phase != Following && s.Phase != Settling || s.Alive):
		return "a term begins where none may"
	case a.Op == Renew && !c.ours(s):
		return "a renewal of a term that is not one's own"
	}
	return ""
}
