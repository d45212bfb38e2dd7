package k8sresourcelock

import (
	"fmt"
	"sync"
)

// Subscription follows one lock until End. It reconnects.
type Subscription interface {
	// Next returns the events since the last call, oldest first, or nil. It does not block.
	Next() []Event
	// StoreRestored must be called when a Read returns a version that is older than a version seen before: the
	// store was restored from a backup. A watch that resumes from the newer version would be silent, so it
	// restarts with the current state. A watch that has seen nothing newer than version continues.
	StoreRestored(version string)
	// End ends the subscription and waits until its goroutines have ended. Later calls of Next return nothing new.
	End()
}

// EventKind is the kind of an Event.
type EventKind uint8

const (
	// WatchConnected means that every change is reported from now on.
	WatchConnected EventKind = iota
	// WatchDisconnected means that the connection ended or could not be opened. The Subscription reconnects.
	WatchDisconnected
	// Changed means that the lock object has changed. Snapshot is the new state.
	Changed
)

// Event is one event of a Subscription.
type Event struct {
	// Kind is the kind of the event.
	Kind EventKind
	// Gap reports that earlier changes may be missing, so that the lock must be read. The first WatchConnected has
	// a gap.
	Gap bool
	// Err is why the connection is over; nil for an ordinary end.
	Err error
	// Snapshot is the state of the lock. It is set for Changed.
	Snapshot Snapshot
}

// maxPending limits the pending events of a subscription. If the limit is exceeded, they are replaced by a gap.
const maxPending = 256

var errQueueFull = fmt.Errorf("more than %d events are pending", maxPending)

// eventQueue contains the events that Next has not returned yet.
type eventQueue struct {
	wake func()

	mu     sync.Mutex
	events []Event
}

// Next implements Subscription.
func (q *eventQueue) Next() []Event {
	q.mu.Lock()
	defer q.mu.Unlock()
	events := q.events
	q.events = nil
	return events
}

// put adds an event.
func (q *eventQueue) put(e Event) {
	q.mu.Lock()
	first := len(q.events) == 0
	if len(q.events) >= maxPending {
		q.events = append(q.events[:0], Event{Kind: WatchDisconnected, Err: errQueueFull}, Event{Kind: WatchConnected, Gap: true})
	}
	q.events = append(q.events, e)
	q.mu.Unlock()
	if first {
		q.wake()
	}
}
