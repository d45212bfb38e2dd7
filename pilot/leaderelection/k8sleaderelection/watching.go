package k8sleaderelection

import (
	"context"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// startWatching follows the lock by a subscription, if its watch can be shared, or by a
// watch of its own.
func (l *loop) startWatching(ctx context.Context) {
	if l.sub = l.subscribe(ctx); l.sub == nil {
		l.watchAlone(ctx)
	}
}

// subscribe is nil when the lock's watch is not to be shared.
func (l *loop) subscribe(ctx context.Context) *k8sresourcelock.Subscription {
	if lock, ok := l.le.lock.(k8sresourcelock.Subscribable); ok {
		return lock.Subscribe(ctx)
	}
	return nil
}

// watchAlone follows the lock by a watch of its own, if it can be watched.
func (l *loop) watchAlone(ctx context.Context) {
	if w, ok := l.le.lock.(k8sresourcelock.Watchable); ok {
		l.watch = newFollower(l, w)
		l.helpers.Go(func() { l.watch.run(ctx) })
	}
}

// stopWatching ends a subscription. A watch of its own ends with its context.
func (l *loop) stopWatching() {
	if l.sub != nil {
		l.sub.End()
		l.sub, l.news = nil, nil
	}
}

func (l *loop) subscribed() <-chan struct{} {
	if l.sub == nil {
		return nil
	}
	return l.sub.Ready()
}

// nextNews is the oldest that was taken from the subscription; nil when there is none.
func (l *loop) nextNews() *event {
	if len(l.news) == 0 {
		l.news = nil
		return nil
	}
	ev := &event{news: &l.news[0]}
	l.news = l.news[1:]
	return ev
}

// hear turns news into an input.
func (l *loop) hear(ctx context.Context, ev *event) {
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
		l.watchAlone(ctx)
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
