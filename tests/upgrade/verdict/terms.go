package verdict

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"incumbent.dev/incumbent/internal/inspect"
	locks "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Change states how a term began or ended, by the writes of the lock.
type Change string

// The changes.
const (
	Created    Change = "created"     // there was no lock
	Acquired   Change = "acquired"    // the lock was free
	Nominated  Change = "nominated"   // another process wrote this candidate as holder
	Overwrote  Change = "overwrote"   // another holder's record was overwritten, or an unreadable one
	Reclaimed  Change = "reclaimed"   // the holder itself began a new term
	Released   Change = "released"    // the holder cleared the record
	HandedOver Change = "handed over" // the holder wrote another candidate as holder
	Taken      Change = "taken"       // another process wrote another holder
	Deleted    Change = "deleted"     // the lock was deleted
	Corrupted  Change = "corrupted"   // the record became unreadable
)

// Term is one term of leadership, by the writes of the lock.
type Term struct {
	Lock, Pod string
	// Key is the key in the record: the holder's revision.
	Key string
	// Start is the version of the holder's own first write. End is the version of the write that ended the term, or 0.
	Start, End uint64
	// From is the time of Start. To is the time of the holder's last own write of the record. EndedAt is the time of End.
	From, To, EndedAt time.Time
	Began, Ended      Change

	uid         string
	transitions int
}

// record is the content of a lock.
type record struct {
	holder, key string
	transitions int
	// named is true for the nomination of a coordinator, which may run in the Pod that it names.
	named bool
}

// nominationSeconds is the lease duration of a coordinator's nomination.
const nominationSeconds = 5

func recordOf(w Write) (r record, ok bool) {
	if w.Kind() == "leases" {
		return record{
			holder:      inspect.Pod(text(w.Object, "spec", "holderIdentity"), w.Name),
			key:         text(w.Object, "metadata", "annotations", locks.LeaseHolderKey),
			transitions: number(w.Object, "spec", "leaseTransitions"),
			named: text(w.Object, "spec", "strategy")+text(w.Object, "metadata", "annotations", "incumbent.dev/strategy") != "" &&
				number(w.Object, "spec", "leaseDurationSeconds") == nominationSeconds,
		}, true
	}
	var of locks.LeaderElectionRecord
	annotation := text(w.Object, "metadata", "annotations", locks.LeaderElectionRecordAnnotationKey)
	if annotation == "" || json.Unmarshal([]byte(annotation), &of) != nil {
		return record{}, false
	}
	return record{holder: of.HolderIdentity, key: of.HolderKey, transitions: of.LeaderTransitions}, true
}

// Terms returns the terms of a lock.
func (h History) Terms(namespace, lock string) []Term {
	terms, _ := h.terms(namespace, lock)
	return terms
}

// terms returns the terms of a lock. It also returns the gaps of its log: the transitions grew without a logged write.
// An unanswered write explains growth by one.
func (h History) terms(namespace, lock string) (terms []Term, gaps []string) {
	other := func(w Write) bool {
		return w.Namespace != namespace || w.Name != lock || w.Resource != "leases" && w.Resource != "configmaps"
	}
	unanswered := slices.DeleteFunc(slices.Clone(h.Unanswered), other)
	var uid string
	var before record
	readable := false
	for _, w := range h.Writes {
		if other(w) {
			continue
		}
		var current *Term
		if n := len(terms); n > 0 && terms[n-1].End == 0 {
			current = &terms[n-1]
		}
		if w.Deleted {
			current.end(w, Deleted)
			uid, readable = "", false
			continue
		}
		r, ok := recordOf(w)
		if !ok {
			if current != nil {
				current.end(w, Corrupted)
			}
			readable = false
			continue
		}
		if r.named {
			w.Pod = "" // not a write of the holder
		}
		missing := max(0, r.transitions-before.transitions-1)
		if w.UID == uid && missing > 0 {
			missing, unanswered = explained(missing, w, unanswered)
		}
		if w.UID == uid && (missing > 0 || r.transitions < before.transitions) {
			gaps = append(gaps, fmt.Sprintf("the log of lock %s goes from %d transitions to %d at %d", lock, before.transitions, r.transitions, w.Version))
		}
		began := beginning(w, r, before, w.UID == uid, readable)
		if current != nil && (current.uid != w.UID || current.Pod != r.holder || current.transitions != r.transitions) {
			current.end(w, ending(w, r, current))
			if current.Ended == Reclaimed {
				began = Reclaimed
			}
			current = nil
		}
		uid, before, readable = w.UID, r, true
		switch {
		case current != nil && w.Pod == current.Pod:
			current.To = w.Answered
		case current == nil && r.holder != "" && w.Pod == r.holder:
			terms = append(terms, Term{
				Lock: lock, Pod: w.Pod, Key: r.key, Start: w.Version, From: w.Answered, To: w.Answered, Began: began, uid: w.UID, transitions: r.transitions,
			})
		}
	}
	return terms, gaps
}

func beginning(w Write, r, before record, sameLock, readable bool) Change {
	switch {
	case !sameLock:
		return Created
	case readable && before.holder == "":
		return Acquired
	case readable && before.holder == r.holder && (before.named || before.transitions == r.transitions):
		return Nominated
	}
	return Overwrote
}

func ending(w Write, r record, current *Term) Change {
	switch {
	case w.Pod != current.Pod:
		return Taken
	case r.holder == "":
		return Released
	case r.holder == current.Pod:
		return Reclaimed
	}
	return HandedOver
}

func (t *Term) end(by Write, how Change) {
	if t == nil {
		return
	}
	t.End = by.Version
	t.EndedAt = by.Answered
	t.Ended = how
	if how == Released || how == HandedOver {
		t.To = by.Answered
	}
}

// explained removes the unanswered writes that were received before w was answered and may have increased the
// transitions. Each explains one increase. It returns the unexplained number and the remaining writes.
func explained(missing int, w Write, unanswered []Write) (unexplained int, left []Write) {
	for _, lost := range unanswered {
		if missing > 0 && lost.Received.Before(w.Answered) {
			missing--
			continue
		}
		left = append(left, lost)
	}
	return missing, left
}
