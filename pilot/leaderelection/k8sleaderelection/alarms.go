package k8sleaderelection

import "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"

// alarm is when a loop wants to be woken by CLOCK_BOOTTIME.
type alarm struct {
	ring func()
	at   core.Instant
	slot int // one more than its place in alarms; 0: it is not set
}

// alarms is a heap, the earliest first.
type alarms []*alarm

func (h alarms) Len() int           { return len(h) }
func (h alarms) Less(i, j int) bool { return h[i].at < h[j].at }

func (h alarms) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].slot, h[j].slot = i+1, j+1
}

// Push implements heap.Interface.
func (h *alarms) Push(x any) {
	a := x.(*alarm)
	*h = append(*h, a)
	a.slot = len(*h)
}

// Pop implements heap.Interface.
func (h *alarms) Pop() any {
	last := len(*h) - 1
	a := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	a.slot = 0
	return a
}
