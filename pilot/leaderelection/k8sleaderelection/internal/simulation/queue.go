package simulation

import "slices"

// event happens at a true time. Events of one time happen in the order of their planning, so that a run depends on
// its seed only.
type event struct {
	at   Time
	what func()
}

// queue has the planned events, the latest first.
type queue []event

func (q *queue) push(at Time, what func()) {
	i, _ := slices.BinarySearchFunc(*q, at, func(e event, at Time) int {
		if e.at > at {
			return -1
		}
		return 1
	})
	*q = slices.Insert(*q, i, event{at, what})
}

// pop removes the earliest event. It returns false if there is none.
func (q *queue) pop() (e event, some bool) {
	if some = len(*q) > 0; some {
		e = (*q)[len(*q)-1]
		*q = (*q)[:len(*q)-1]
	}
	return e, some
}
