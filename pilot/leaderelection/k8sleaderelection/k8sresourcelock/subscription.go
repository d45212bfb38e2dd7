package k8sresourcelock

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// Subscribable is a Watchable whose changes somebody waits for anyhow: following it
// needs neither a goroutine nor a connection for each lock.
type Subscribable interface {
	// Subscribe follows the lock object until End, over all connections that this
	// takes. It returns nil when the lock has to be followed by Watch. It does not block.
	// It calls wake, before it has returned too, when there are News for Next after there
	// were none. wake must not block, nor call the Subscription.
	Subscribe(ctx context.Context, wake func()) *Subscription
}

// NewsKind says what News are about.
type NewsKind uint8

const (
	// Up: from now on each change is shown.
	Up NewsKind = iota
	// Down: the connection is over. It is made anew, and is up again then.
	Down
	// Changed: Snapshot is what a change of the lock object left behind.
	Changed
	// Refused: the namespace may not be watched as a whole. Nothing comes any more: end
	// this and use Watch.
	Refused
)

// News is one thing that a subscription tells.
type News struct {
	Kind NewsKind
	// Gap: changes before it may not have been shown; Read the lock. The first Up has one.
	Gap bool
	// Err is why the connection is over; nil for an ordinary end.
	Err error
	// Resume is the version to go on from, "" when that is not possible.
	Resume   string
	Snapshot Snapshot
}

// maxPending bounds what a subscription may have in store. One that is further behind
// has not been looking for minutes.
const maxPending = 256

var errBehind = fmt.Errorf("more than %d changes were not taken in", maxPending)

// Subscription is one lock's part in a shared watch.
type Subscription struct {
	of   *sharedWatch
	name string
	wake func()

	// of.hub.mu guards these. from is the version as of which the Lease is known,
	// unless it has been up already: then it is kept up to date by what it is told.
	from  string
	known bool
	news  []News
}

// Next takes what is in store, oldest first; nil when there is nothing.
func (s *Subscription) Next() []News {
	s.of.hub.mu.Lock()
	defer s.of.hub.mu.Unlock()
	news := s.news
	s.news = nil
	return news
}

// Rewound says that a Read has shown a version older than one known before. When the
// watch has shown that one, it begins anew.
func (s *Subscription) Rewound(present string) { s.of.rewound(s.name, present) }

// End ends the subscription, and returns when what only it needed has ended.
func (s *Subscription) End() {
	s.end()
	s.of.hub.leave(s.of.namespace)
}

func (s *Subscription) end() { s.of.remove(s) }

// began tells that the watch is up. The caller holds hub.mu.
func (s *Subscription) began() {
	s.put(News{Kind: Up, Gap: !s.known && !s.of.joinable(s.name, s.from)})
	s.known = true
}

// put puts news in store. The caller holds hub.mu.
func (s *Subscription) put(n News) {
	if len(s.news) >= maxPending {
		s.news = append(s.news[:0], News{Kind: Down, Err: errBehind}, News{Kind: Up, Gap: true})
	}
	s.news = append(s.news, n)
	if len(s.news) == 1 {
		s.wake()
	}
}

// follow is Watch, as far as one connection of the shared watch goes; shared is false
// when the namespace may not be watched.
func (s *Subscription) follow(ctx context.Context, a access[*coordinationv1.Lease], from string, ready <-chan struct{}, up func(), seen func(Snapshot)) (last string, shared bool, err error) {
	last, isUp := from, false
	for {
		for _, n := range s.Next() {
			switch {
			case ctx.Err() != nil:
				return last, true, nil
			case n.Kind == Refused:
				return last, isUp, nil
			case n.Kind == Down:
				return n.Resume, true, n.Err
			case n.Kind == Up && isUp:
			case n.Gap && from != "":
				return "", true, nil // too late to be told all
			case n.Kind == Up:
				if last, err = s.present(ctx, a, from, up, seen); err != nil {
					return "", true, err
				}
				isUp = true
			case later(n.Snapshot.ResourceVersion, last):
				seen(n.Snapshot)
				last = n.Snapshot.ResourceVersion
			}
		}
		select {
		case <-ready:
		case <-ctx.Done():
			return last, true, nil
		}
	}
}

// present begins a Watch: it is up, and one from nothing starts with the present state.
// That is asked for now that the watch shows all that is later.
func (s *Subscription) present(ctx context.Context, a access[*coordinationv1.Lease], from string, up func(), seen func(Snapshot)) (string, error) {
	if from != "" {
		up()
		return from, nil
	}
	snap, err := readWithin(ctx, a)
	if err != nil {
		return "", err
	}
	if s.of.rewound(s.name, snap.ResourceVersion) {
		return "", nil // the connection's end is on its way
	}
	up()
	if !snap.Exists || ctx.Err() != nil {
		return "", nil
	}
	seen(snap)
	return snap.ResourceVersion, nil
}

// readWithin is read within acceptLimit: a connection that swallows the answer must not keep
// a watch from ever being up, or from ending.
func readWithin(parent context.Context, a access[*coordinationv1.Lease]) (Snapshot, error) {
	ctx, cancel := context.WithTimeout(parent, acceptLimit)
	defer cancel()
	return a.read(ctx)
}
