package simulation

import "container/heap"

// event happens at a true time. Events of one time happen in the order of their
// planning, so that a run depends on its seed only.
type event struct {
	at   Time
	seq  uint64
	what func()
}

// events implements heap.Interface, earliest event first.
type events []event

func (e events) Len() int { return len(e) }

func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}

func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

func (e *events) Push(x any) { *e = append(*e, x.(event)) }

func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

type queue struct {
	events events
	seq    uint64
}

func (q *queue) push(at Time, what func()) {
	q.seq++
	heap.Push(&q.events, event{at: at, seq: q.seq, what: what})
}

// pop removes the earliest event. It returns false if there is none.
func (q *queue) pop() (event, bool) {
	if len(q.events) == 0 {
		return event{}, false
	}
	return heap.Pop(&q.events).(event), true
}
