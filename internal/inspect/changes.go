package inspect

import (
	"cmp"
	"fmt"

	"incumbent.dev/incumbent/internal/record"
)

// Changes describes the changes between two states of an election. A renewal is no change. before or after is nil if the lock did
// not exist.
func Changes(before, after *Election) (changes []string) {
	add := func(format string, args ...any) { changes = append(changes, fmt.Sprintf(format, args...)) }
	switch {
	case after == nil && before == nil:
		return nil
	case after == nil:
		add("lock deleted; before: %s", before.HeldBy())
		return changes
	case before == nil:
		add("lock created: %s", after.HeldBy())
		return changes
	}
	a, b := before, after
	switch {
	case a.Holder != b.Holder || a.Transitions != b.Transitions:
		add("%s", b.came(a))
	case a.State != b.State:
		add("%s %s", cmp.Or(b.Holder, "the lock"), b.StateText())
	}
	if a.Unfit != b.Unfit && b.Unfit {
		add("%s became unfit", b.Holder)
	}
	switch same := a.State == Leads && b.State == Leads && a.Holder == b.Holder; {
	case b.Uncoordinated != "" && a.Uncoordinated == "":
		add("the election runs as without a coordinator: %s", b.Uncoordinated)
	case same && b.Uncoordinated == "" && a.Uncoordinated != "":
		add("a coordinator chooses the leader again")
	}
	if b.Preferred != "" && b.Preferred != a.Preferred {
		add("coordinator requested a change to %s", b.Preferred)
	}
	switch {
	case b.Request != nil && (a.Request == nil || differs(*a.Request, *b.Request)):
		add("%s", RequestText(*b.Request))
	case a.Request != nil && b.Request == nil && a.Holder == b.Holder && a.Transitions == b.Transitions:
		add("handover request removed")
	}
	switch {
	case b.Hold != nil && (a.Hold == nil || *a.Hold != *b.Hold):
		add("%s set a hold for %s (%s)", b.Hold.Requester, Seconds(b.Hold.Seconds), b.Hold.Reason)
	case a.Hold != nil && b.Hold == nil && a.Holder == b.Holder:
		add("hold removed")
	}
	return changes
}

// HeldBy returns the holder and the state.
func (e *Election) HeldBy() string {
	if e.Holder == "" {
		return string(e.State)
	}
	return e.Holder + " " + e.StateText()
}

// came describes how the lock got from a to e.
func (e *Election) came(a *Election) string {
	switch {
	case e.State == Unreadable:
		return "record became unreadable"
	case e.Holder == "":
		return a.Holder + " released the lock"
	case e.State == Nominated && e.Strategy != "" && e.Transitions == a.Transitions:
		return fmt.Sprintf("coordinator named %s", e.named()) // the nominee increments the transitions
	case e.State == Nominated:
		return fmt.Sprintf("%s was nominated by %s", e.named(), cmp.Or(a.Holder, "an unknown process"))
	case a.Holder == "":
		return fmt.Sprintf("%s acquired the lock and %s", e.named(), e.State)
	case a.Holder == e.Holder:
		return fmt.Sprintf("%s began a new term and %s", e.named(), e.State)
	}
	return fmt.Sprintf("%s acquired the lock from %s and %s", e.named(), a.Holder, e.State)
}

func (e *Election) named() string {
	if e.Key == "" {
		return e.Holder
	}
	return e.Holder + " (" + e.Key + ")"
}

// differs ignores the seconds, which differ each time that a challenger repeats its request.
func differs(a, b record.Request) bool {
	a.Seconds = b.Seconds
	return a != b
}

// RequestWord describes the state of a request.
func RequestWord(r record.Request) string {
	to := cmp.Or(r.Identity, "any candidate")
	switch {
	case r.Refused != "":
		return "refused handover to " + to
	case r.Accepted:
		return "handing over to " + to
	}
	return "handover to " + to + " requested"
}

// RequestText describes a request with its cause.
func RequestText(r record.Request) string {
	text := fmt.Sprintf("%s (%s, by %s)", RequestWord(r), r.Reason, cmp.Or(r.Requester, "?"))
	if why := cmp.Or(r.Refused, r.Note); why != "" {
		text += ": " + why
	}
	return text
}
