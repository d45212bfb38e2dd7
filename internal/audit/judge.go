package audit

import (
	"slices"
	"time"
)

// Rule names the rule that a write violated.
type Rule string

// The rules.
const (
	// Unelected: a pod wrote a guarded object without ever having had a term.
	Unelected Rule = "unelected"
	// Interleaved: a pod wrote after the later term of another pod had begun to write.
	Interleaved Rule = "interleaved"
	// Late: a pod wrote after its term had ended or another one had begun.
	Late Rule = "late"
)

// Breach is a write of a candidate that did not hold its lock.
type Breach struct {
	Rule Rule
	Write
	Lock Lock
	// Own is the last term of the writer, Next the next term of another pod. Both may be nil.
	Own, Next *Term
	// Late is the time since the end of the own term, Overlap the time since the next term began.
	Late, Overlap time.Duration
}

// Result has what Judge counted.
type Result struct {
	// Judged counts the guarded writes of each lock.
	Judged map[Lock]int
	// Undecided counts writes that may be before or after a change of the leader.
	Undecided int
	// ByTime counts the guarded writes that were compared by time stamps.
	ByTime int
}

// Judge compares each guarded write with the terms of its lock, and calls breach for each write of a pod that did not hold
// it. guards returns the locks that permit a write: the writer must hold at least one.
func Judge(h History, courses map[Lock]*Course, guards func(Write) []Lock, breach func(Breach)) Result {
	result := Result{Judged: map[Lock]int{}}
	books := newBooks(courses)
	wrote := map[*Term]bool{} // the terms with a guarded write
	for w := range h.All() {
		locks := guards(w)
		if len(locks) == 0 {
			continue
		}
		if !w.Exact {
			result.ByTime++
		}
		worst, in := books.judge(w, locks)
		result.Judged[worst.Lock]++
		switch {
		case in == unknown:
			result.Undecided++
		case in == inside:
			wrote[worst.Own] = true
		default:
			if n := worst.Next; n != nil && w.compare(n.Start) > 0 && wrote[n] {
				worst.Rule = Interleaved
			}
			breach(worst)
		}
	}
	return result
}

// place is the position of a write relative to a term of its writer.
type place int

const (
	inside place = iota
	unknown
	after
)

// book finds the terms of a lock.
type book struct {
	*Course
	byPod map[string][]int
}

type books map[Lock]*book

func newBooks(courses map[Lock]*Course) books {
	all := books{}
	for lock, c := range courses {
		b := &book{c, map[string][]int{}}
		for i, t := range c.Terms {
			b.byPod[t.Pod] = append(b.byPod[t.Pod], i)
		}
		all[lock] = b
	}
	return all
}

// own returns the last term of the writer that began before the write, and the position of the write relative to it.
func (b *book) own(w Write) (*Term, place) {
	if b == nil {
		return nil, after
	}
	all := b.byPod[w.Pod]
	n, _ := slices.BinarySearchFunc(all, w.Point, func(i int, p Point) int {
		if t := b.Terms[i]; t.Began == Ongoing || p.compare(t.Start) >= 0 {
			return -1
		}
		return 1
	})
	if n == 0 {
		if len(b.Terms) == 0 || b.Terms[0].Began != Created && w.compare(b.First) <= 0 {
			return nil, unknown // the log does not show who led then
		}
		return nil, after
	}
	t := &b.Terms[all[n-1]]
	end := t.End
	if t.Ended == Deleted || t.Ended == Corrupted {
		// The leader learns of a deleted or corrupted lock only by its watch.
		if next := all[n-1] + 1; next < len(b.Terms) {
			end = b.Terms[next].Start
		} else {
			end = Point{}
		}
	}
	if end == (Point{}) {
		return t, inside
	}
	switch order := w.compare(end); {
	case order > 0:
		return t, after
	case order == 0 && !(w.Exact && end.Exact):
		return t, unknown
	}
	return t, inside
}

// proved reports whether the write is between two writes of one term of another pod. Then no write of the lock that the log lacks makes
// its writer the leader.
func (b *book) proved(w Write) bool {
	return b != nil && slices.ContainsFunc(b.Terms, func(t Term) bool {
		return t.Pod != w.Pod && w.compare(t.Start) > 0 && w.compare(t.last) < 0
	})
}

// next returns the first term of another pod after a term, or after the beginning of the log.
func (b *book) next(own *Term, pod string) *Term {
	if b == nil || own == nil {
		return nil
	}
	for i := range b.Terms {
		if t := &b.Terms[i]; t.Pod != pod && t.Start.compare(own.Start) > 0 {
			return t
		}
	}
	return nil
}

// judge returns the best position of a write relative to the terms of several locks.
func (all books) judge(w Write, locks []Lock) (b Breach, in place) {
	in = after + 1
	for _, lock := range locks {
		own, at := all[lock].own(w)
		if at < in || at == in && b.Own == nil && own != nil {
			b = Breach{Write: w, Lock: lock, Own: own}
			in = at
		}
	}
	if in != after {
		return b, in
	}
	b.Rule = Unelected
	if b.Own != nil {
		b.Rule = Late
		b.Late = max(0, w.Answered.Sub(b.Own.End.Answered))
		b.Next = all[b.Lock].next(b.Own, w.Pod)
		if b.Next != nil {
			b.Overlap = max(0, w.Answered.Sub(b.Next.Start.Answered))
		}
	}
	return b, in
}

// Leaderless returns the longest time from the last write of a holder to the first write of the next one, and the number of
// the later term. It leaves out deleted locks.
func (c *Course) Leaderless() (longest time.Duration, before int) {
	for i := 1; i < len(c.Terms); i++ {
		if c.Terms[i-1].Ended == Deleted {
			continue
		}
		if gap := c.Terms[i].Start.Answered.Sub(c.Terms[i-1].To); gap > longest {
			longest = gap
			before = i
		}
	}
	return longest, before
}

// Changes returns the number of changes of the pod, and the largest number in a period of the given length.
func (c *Course) Changes(window time.Duration) (all, most int, until time.Time) {
	var times []time.Time
	for i := 1; i < len(c.Terms); i++ {
		if c.Terms[i].Pod == c.Terms[i-1].Pod {
			continue
		}
		times = append(times, c.Terms[i].Start.Answered)
		first := slices.IndexFunc(times, func(t time.Time) bool { return times[len(times)-1].Sub(t) <= window })
		if n := len(times) - first; n > most {
			most = n
			until = times[len(times)-1]
		}
	}
	return len(times), most, until
}
