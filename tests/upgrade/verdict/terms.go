package verdict

import (
	"encoding/json"
	"fmt"
	"time"

	locks "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Term is one time of leadership, by the writes of the lock.
type Term struct {
	Lock, Pod string
	// Key is the rank that the record has, a revision.
	Key string
	// Start is the holder's own first write, End the write by which the record is its own no more; 0 while it is.
	Start, End uint64
	// From is when Start was answered; To is when the holder's last own write of the record was, its release or handover
	// included.
	From, To time.Time
	// How it ended: "released", "handed over", "taken", "deleted"; "" while it has not.
	How string

	uid         string
	transitions int
}

// record is what a lock says.
type record struct {
	holder, key string
	transitions int
}

func recordOf(w Write) (r record, ok bool) {
	if w.Kind() == "leases" {
		return record{
			holder: text(w.Object, "spec", "holderIdentity"), key: text(w.Object, "metadata", "annotations", locks.LeaseHolderKey),
			transitions: number(w.Object, "spec", "leaseTransitions"),
		}, true
	}
	var of locks.LeaderElectionRecord
	annotation := text(w.Object, "metadata", "annotations", locks.LeaderElectionRecordAnnotationKey)
	if annotation == "" || json.Unmarshal([]byte(annotation), &of) != nil {
		return record{}, false
	}
	return record{of.HolderIdentity, of.HolderKey, of.LeaderTransitions}, true
}

// lockTerms are the terms of one lock, and what its writes lack: an increase of the transitions that no write of
// the log made. One whose answer was never logged may have been stored, and have made an increase of one: its writer
// has not learnt that it leads.
func lockTerms(lock string, writes, unanswered []Write) (terms []Term, lacks []string) {
	var uid string
	var before int
	for _, w := range writes {
		now := func() *Term { // the one that has not ended
			if n := len(terms); n > 0 && terms[n-1].End == 0 {
				return &terms[n-1]
			}
			return nil
		}
		if w.Deleted {
			if t := now(); t != nil {
				t.end(w, "deleted")
			}
			continue
		}
		r, readable := recordOf(w)
		if !readable {
			continue
		}
		missing := max(0, r.transitions-before-1)
		if w.UID == uid && missing > 0 {
			missing, unanswered = explained(missing, w, unanswered)
		}
		if w.UID == uid && (missing > 0 || r.transitions < before) {
			lacks = append(lacks, fmt.Sprintf("the log of lock %s goes from %d transitions to %d at %d", lock, before, r.transitions, w.Version))
		}
		t := now()
		if t != nil && (t.uid != w.UID || t.Pod != r.holder || t.transitions != r.transitions) {
			t.end(w, "taken")
			switch {
			case w.Pod != t.Pod:
			case r.holder == "":
				t.How = "released"
			default:
				t.How = "handed over"
			}
			t = nil
		}
		uid, before = w.UID, r.transitions
		switch {
		case t != nil && w.Pod == t.Pod:
			t.To = w.Answered
		case t == nil && r.holder != "" && w.Pod == r.holder:
			terms = append(terms, Term{
				Lock: lock, Pod: w.Pod, Key: r.key, Start: w.Version, From: w.Answered, To: w.Answered, uid: w.UID, transitions: r.transitions,
			})
		}
	}
	return terms, lacks
}

func (t *Term) end(by Write, how string) {
	t.End, t.How = by.Version, how
	if by.Pod == t.Pod {
		t.To = by.Answered
	}
}

// explained takes those unanswered writes away that came before w was answered and may have made so many increases of
// the transitions. It returns how many they do not explain, and the writes that are left: each explains one.
func explained(missing int, w Write, unanswered []Write) (unexplained int, left []Write) {
	for _, lost := range unanswered {
		if missing > 0 && lost.Came.Before(w.Answered) {
			missing--
			continue
		}
		left = append(left, lost)
	}
	return missing, left
}
