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
		"same term":            {func(*Snapshot) {}, HolderDied},
		"renewed":              {func(s *Snapshot) { s.Record.Renewed++; s.Version++ }, HolderDied},
		"request pending":      {func(s *Snapshot) { s.Annotations.Request = Request{Identity: "c", Holder: "b", Transitions: 3} }, HolderDied},
		"deleted":              {deleted, LockDeleted},
		"recreated":            {func(s *Snapshot) { s.UID.First = "other" }, LockDeleted},
		"unreadable":           {unreadable, RecordUnreadable},
		"released":             {released, RecordEmptied},
		"other holder":         {func(s *Snapshot) { s.Record.Holder = "c" }, Superseded},
		"later term":           {func(s *Snapshot) { s.Record.Transitions++ }, Superseded},
		"same number, later":   {func(s *Snapshot) { s.Record.Acquired++ }, Superseded},
		"settling":             {marked("", 0), EarlierHolderMayAct},
		"settling after other": {marked("c", 2), EarlierHolderMayAct},
		"nominated again":      {func(s *Snapshot) { marked("", 0)(s); s.Annotations.Nominated.Identity = "b" }, EarlierHolderMayAct},
		"half":                 {func(s *Snapshot) { s.Halves = InFirst }, HalfLost},
	} {
		s := acting
		c.change(&s)
		if got := term.Left(s); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
