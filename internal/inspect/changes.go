package inspect

import "fmt"

// Changes says what is new in after, in words; nothing where its holder has only renewed. before
// is nil when there was no lock, and after when there is none any more.
func Changes(before, after *Election) (words []string) {
	say := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	switch {
	case after == nil && before == nil:
		return nil
	case after == nil:
		say("the lock was deleted, which %s", heldBy(before))
		return words
	case before == nil:
		say("there is a lock, which %s", heldBy(after))
		return words
	}
	a, b := before, after
	switch {
	case a.Holder != b.Holder || a.Transitions != b.Transitions:
		say("%s", b.came(a))
	case a.State != b.State:
		say("%s %s", or(b.Holder, "the lock"), b.State)
	}
	if a.Unfit != b.Unfit && b.Unfit {
		say("%s would rather not lead", b.Holder)
	}
	if b.Preferred != "" && b.Preferred != a.Preferred {
		say("the coordinator prefers %s", b.Preferred)
	}
	if request := b.Request; request != nil && (a.Request == nil || *a.Request != *request) {
		say("%s", request.words())
	}
	switch {
	case b.Hold != nil && (a.Hold == nil || *a.Hold != *b.Hold):
		say("%s keeps it there for %d s (%s)", b.Hold.Requester, b.Hold.Seconds, b.Hold.Reason)
	case a.Hold != nil && b.Hold == nil && a.Holder == b.Holder:
		say("rank counts again")
	}
	return words
}

func heldBy(e *Election) string {
	if e.Holder == "" {
		return "is " + string(e.State)
	}
	return e.Holder + " " + string(e.State)
}

// came says how the lock came from a to e.
func (e *Election) came(a *Election) string {
	switch {
	case e.State == Unreadable:
		return "the record is unreadable now"
	case e.Holder == "":
		return a.Holder + " gave it up"
	case e.State == Nominated && e.Strategy != "" && e.Transitions == a.Transitions:
		return fmt.Sprintf("%s was named by the coordinator", e.named()) // which leaves the count to the one it names
	case e.State == Nominated:
		return fmt.Sprintf("%s was written in by %s", e.named(), or(a.Holder, "nobody"))
	case a.Holder == "":
		return fmt.Sprintf("%s took it and %s", e.named(), e.State)
	case a.Holder == e.Holder:
		return fmt.Sprintf("%s begins a new term and %s", e.named(), e.State)
	}
	return fmt.Sprintf("%s took it from %s and %s", e.named(), a.Holder, e.State)
}

func (e *Election) named() string {
	if e.Key == "" {
		return e.Holder
	}
	return e.Holder + " (" + e.Key + ")"
}

func (r Request) words() string {
	to := or(r.To, "whoever comes")
	switch {
	case r.Refused != "":
		return "refused to hand over to " + to + ": " + r.Refused
	case r.Accepted:
		return "the leader accepts to hand over to " + to + ", and ends its work"
	}
	return fmt.Sprintf("asked to hand over to %s (%s, by %s)", to, r.Reason, or(r.Requester, "?"))
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
