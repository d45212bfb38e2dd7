package k8sresourcelock

import (
	"context"
	"fmt"
	"sync"
)

// Subscription follows one lock until End, over all connections that this takes.
type Subscription interface {
	// Next returns the Event since the last call, oldest first, and removes them; nil when there
	// are none. It does not block.
	Next() []Event
	// Rewound is for the subscriber to call when a Read has shown a version, present, that is
	// older than one it has seen before: the store was restored to an earlier state. A watch that
	// resumes from the newer version would be accepted and show nothing, so it begins anew with
	// the present state. A shared one that has shown nothing newer than present goes on.
	StoreRestored(present string)
	// End ends the subscription, and returns when all that only it needed has ended. Next shows
	// nothing new then.
	End()
}

// EventKind says what Event are about.
type EventKind uint8

const (
	// Up: from now on each change is shown.
	WatchConnected EventKind = iota
	// Down: the connection is over, or could not be had. It is made anew, and is up again then.
	WatchDisconnected
	// Changed: the lock object has changed; Snapshot shows it after the change.
	Changed
)

// Event is one thing that a Subscription tells.
type Event struct {
	Kind EventKind
	// Gap: changes before it may not have been shown; Read the lock. The first Up has one.
	Gap bool
	// Err is why the connection is over; nil for an ordinary end.
	Err      error
	Snapshot Snapshot
}

// Subscribable is a lock that is followed by more than one Watch after the other.
type Subscribable interface {
	// Subscribe is the function Subscribe for this lock.
	Subscribe(ctx context.Context, wake func()) Subscription
}

// Subscribe follows a lock. It returns nil for one that is neither Watchable nor Subscribable, which
// has to be polled, and does not block. It calls wake, before it has returned too, when there are Event for Next after
// there were none. wake must not block, nor call the Subscription.
func Subscribe(ctx context.Context, lock Interface, wake func()) Subscription {
	switch lock := lock.(type) {
	case Subscribable:
		return lock.Subscribe(ctx, wake)
	case Watchable:
		return newLockWatch(ctx, lock, nil, "", "", wake)
	}
	return nil
}

// maxPending bounds what a subscription may have in store. One that is further behind
// has not been looking for minutes.
const maxPending = 256

var errBehind = fmt.Errorf("more than %d changes were not taken in", maxPending)

// mailbox holds the Event that were not taken yet.
type mailbox struct {
	wake func()

	mu   sync.Mutex
	news []Event
}

// Next implements Subscription.
func (m *mailbox) Next() []Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	news := m.news
	m.news = nil
	return news
}

// put puts news in store.
func (m *mailbox) put(n Event) {
	m.mu.Lock()
	first := len(m.news) == 0
	if len(m.news) >= maxPending {
		m.news = append(m.news[:0], Event{Kind: WatchDisconnected, Err: errBehind}, Event{Kind: WatchConnected, Gap: true})
	}
	m.news = append(m.news, n)
	m.mu.Unlock()
	if first {
		m.wake()
	}
}
