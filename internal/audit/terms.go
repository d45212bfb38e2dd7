package audit

import (
	"fmt"
	"slices"
	"time"
)

// Change states how a term began or ended, by the writes of the lock.
type Change string

// The changes.
const (
	Ongoing    Change = "ongoing"     // the log begins in the term
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
	Lock Lock
	Pod  string
	// Key is the key in the record: the holder's revision.
	Key string
	// Start is the holder's own first write. End is the write that ended the term; Ended is empty if the log ends in the term.
	Start, End Point
	// To is the time of the holder's last own write of the record.
	To           time.Time
	Began, Ended Change

	uid         string
	transitions int
	last        Point // the holder's last own write of the record
}

// Course is the sequence of the terms of a lock.
type Course struct {
	Terms []Term
	// Gaps describe missing writes: the transitions grew without a logged write. An unanswered write explains growth by one.
	Gaps []string
	// Silent is the longest time without a renewal in a term, if it is longer than two leases. Until is its end.
	Silent time.Duration
	Until  time.Time
	// First is the first write of the lock.
	First Point

	unanswered     []Write
	uid            string
	before         content
	seen, readable bool
}

// Courses returns the terms of each lock.
func (h History) Courses() map[Lock]*Course {
	all := map[Lock]*Course{}
	for lock := range h.locks {
		all[lock] = &Course{}
	}
	for _, w := range h.Unanswered() {
		if c := all[w.lockID()]; c != nil {
			c.unanswered = append(c.unanswered, w)
		}
	}
	for _, e := range h.log.entries {
		if c := all[e.target.Value().lock()]; c != nil {
			c.add(h.write(e), h.aliases)
		}
	}
	return all
}

// add adds a write of the lock.
func (c *Course) add(w Write, aliases map[string]string) {
	var current *Term
	if n := len(c.Terms); n > 0 && c.Terms[n-1].Ended == "" {
		current = &c.Terms[n-1]
	}
	switch {
	case w.Deleted:
		current.end(w, Deleted)
		c.uid = ""
		c.before = content{}
		c.readable = false
		return
	case w.lock == nil:
		return // a write without a body
	case c.First == (Point{}):
		c.First = w.Point
	}
	if !w.lock.readable {
		current.end(w, Corrupted)
		c.readable = false
		return
	}
	c.record(w, *w.lock, current, aliases)
}

// record adds a write with a record.
func (c *Course) record(w Write, r content, current *Term, aliases map[string]string) {
	pod := podOf(r.holder)
	if alias, is := aliases[pod]; is {
		pod = alias
	}
	if w.shared {
		// Only the previous holder releases the lock or nominates another candidate.
		w.Pod = pod
		if r.holder == "" || r.nominated {
			w.Pod = podOf(c.before.holder)
		}
	}
	own := w.Pod == pod && !r.named
	same := c.seen && (w.UID == c.uid || w.UID == "") && !r.created
	if same {
		c.findGap(w, r)
	}
	began := c.beginning(r, same)
	if current != nil && (current.uid != w.UID || current.Pod != pod || current.transitions != r.transitions) {
		current.end(w, ending(w, r, pod, current))
		if current.Ended == Reclaimed {
			began = Reclaimed
		}
		current = nil
	}
	c.uid, c.before = w.UID, r
	c.seen, c.readable = true, true
	switch {
	case current != nil && own:
		if silent := w.Answered.Sub(current.To); silent > 2*r.lease && silent > c.Silent && r.lease > 0 {
			c.Silent = silent
			c.Until = w.Answered
		}
		current.To = w.Answered
		current.last = w.Point
	case current == nil && r.holder != "" && own:
		c.Terms = append(c.Terms, Term{
			Lock: w.lockID(), Pod: pod, Key: r.key, Start: w.Point, To: w.Answered, Began: began, uid: w.UID, transitions: r.transitions, last: w.Point,
		})
	}
}

func (c *Course) beginning(r content, same bool) Change {
	switch {
	case !same && r.created:
		return Created
	case !c.seen && !r.fresh:
		return Ongoing
	case !c.seen:
		return Acquired
	case !same:
		return Created
	case c.readable && c.before.holder == "":
		return Acquired
	case c.readable && c.before.holder == r.holder && (c.before.named || c.before.transitions == r.transitions):
		return Nominated
	}
	return Overwrote
}

func ending(w Write, r content, pod string, current *Term) Change {
	switch {
	case w.Pod != current.Pod:
		return Taken
	case r.holder == "":
		return Released
	case pod == current.Pod:
		return Reclaimed
	}
	return HandedOver
}

func (t *Term) end(by Write, how Change) {
	if t == nil {
		return
	}
	t.End = by.Point
	t.Ended = how
	if how == Released || how == HandedOver {
		t.To = by.Answered
	}
}

// findGap compares the transitions of two consecutive writes of one object. Unanswered writes that were received before the
// second one was answered explain one transition each.
func (c *Course) findGap(w Write, r content) {
	missing := max(0, r.transitions-c.before.transitions-1)
	c.unanswered = slices.DeleteFunc(c.unanswered, func(lost Write) bool {
		if missing == 0 || !lost.Received.Before(w.Answered) {
			return false
		}
		missing--
		return true
	})
	if missing > 0 || r.transitions < c.before.transitions {
		c.Gaps = append(c.Gaps, fmt.Sprintf("the log of lock %s goes from %d transitions to %d at %d", w.Name, c.before.transitions, r.transitions, w.Version))
	}
}
