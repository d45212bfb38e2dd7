package core

import "testing"

// A witness releases a lock only if every part of it matches the registered term.
func TestEndedTerm_Left(t *testing.T) {
	acting := lock("equal")
	term := EndedTerm{Holder: "b", UID: acting.UID, Transitions: 3, Acquired: acting.Record.Acquired}
	for name, c := range map[string]struct {
		change func(*Snapshot)
		want   Reason
	}{
		"deleted":            {deleted, LockDeleted},
		"same number, later": {func(s *Snapshot) { s.Record.Acquired++ }, Superseded},
	} {
		s := acting
		c.change(&s)
		if got := term.Left(s); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
