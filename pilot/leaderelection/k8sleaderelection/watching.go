package k8sleaderelection

import (
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// startWatching follows the lock by a subscription, if its watch can be shared, or by a
// watch of its own.
func (l *loop) startWatching() {
	if l.sub = l.subscribe(); l.sub == nil {
		l.watchAlone()
	}
}

// subscribe is nil when the lock's watch is not to be shared.
func (l *loop) subscribe() *k8sresourcelock.Subscription {
	if lock, ok := l.le.lock.(k8sresourcelock.Subscribable); ok {
		return lock.Subscribe(l.values, func() { l.give(told) })
	}
	return nil
}

// watchAlone follows the lock by a watch of its own, if it can be watched.
func (l *loop) watchAlone() {
	if w, ok := l.le.lock.(k8sresourcelock.Watchable); ok {
		f, work := newFollower(l, w), l.background()
		l.watch = f
		l.helpers.Go(func() { f.run(work) })
	}
}

// stopWatching ends a subscription. A watch of its own ends with its context.
func (l *loop) stopWatching() {
	if l.sub != nil {
		l.sub.End()
		l.sub = nil
	}
}

// hearAll takes in what the subscription has to tell, each of it in a pass of its own.
func (l *loop) hearAll() {
	sub := l.sub
	if sub == nil {
		return
	}
	for _, n := range sub.Next() {
		if l.sub != sub || l.state.Phase == core.Done {
			return // it was ended by what it told
		}
		l.pass(&event{news: &n})
	}
}

// hear turns news into an input.
func (l *loop) hear(ev *event) {
	switch n := ev.news; n.Kind {
	case k8sresourcelock.Up:
		ev.in.Kind, ev.in.Gap = core.Watching, n.Gap
		l.report.watching(nil)
	case k8sresourcelock.Down:
		if l.state.Watch { // only its end is one: tries that fail must not put polls off
			ev.in.Kind = core.Unwatched
		}
		if n.Err != nil {
			l.report.watching(n.Err)
		}
	case k8sresourcelock.Changed:
		snap, err := l.le.codec.snapshot(n.Snapshot)
		if err != nil {
			l.report.watching(err)
			return
		}
		ev.in.Kind, ev.in.Snap, ev.lock = core.Seen, snap, n.Snapshot
	case k8sresourcelock.Refused:
		if l.state.Watch {
			ev.in.Kind = core.Unwatched
		}
		l.stopWatching()
		l.watchAlone()
	}
}

// rewound begins the watch anew: the store has gone back in time, and a watch from a
// version to come is accepted, and silent.
func (l *loop) rewound() {
	switch {
	case l.sub != nil:
		l.sub.Rewound(l.base.ResourceVersion)
	case l.watch != nil:
		l.watch.restart()
	}
}
