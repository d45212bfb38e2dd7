package simulation

// event is something that happens at a true time; events of one time happen in the
// order in which they were planned, so that a run depends on its seed alone.
type event struct {
	at   Time
	seq  uint64
	what func()
}

// queue is a binary heap of events, earliest first.
type queue struct {
	heap []event
	seq  uint64
}

func (e event) before(f event) bool { return e.at < f.at || e.at == f.at && e.seq < f.seq }

func (q *queue) push(at Time, what func()) {
	q.seq++
	q.heap = append(q.heap, event{at: at, seq: q.seq, what: what})
	i := len(q.heap) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !q.heap[i].before(q.heap[parent]) {
			break
		}
		q.heap[i], q.heap[parent] = q.heap[parent], q.heap[i]
		i = parent
	}
}

// pop takes out the earliest event; false if there is none.
func (q *queue) pop() (event, bool) {
	if len(q.heap) == 0 {
		return event{}, false
	}
	first := q.heap[0]
	last := len(q.heap) - 1
	q.heap[0] = q.heap[last]
	q.heap[last] = event{}
	q.heap = q.heap[:last]
	q.sift()
	return first, true
}

func (q *queue) sift() {
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(q.heap); child++ {
			if q.heap[child].before(q.heap[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		q.heap[i], q.heap[least] = q.heap[least], q.heap[i]
		i = least
	}
}
