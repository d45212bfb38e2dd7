package k8sleaderelection

import (
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// startWatching subscribes to the lock, if it can be watched.
func (l *loop) startWatching() {
	l.watch = l.le.lock.Subscribe(l.values, func() { l.signal(watchEvent) })
}

// takeWatchEvents handles the events of the watch, one per pass.
func (l *loop) takeWatchEvents() {
	if l.watch == nil {
		return
	}
	for _, n := range l.watch.Next() {
		if l.state.Phase == core.Done {
			return // the previous event ended the run
		}
		l.pass(&event{watched: &n})
	}
}

// decodeWatchEvent decodes a watch event into an input.
func (l *loop) decodeWatchEvent(ev *event) {
	switch n := ev.watched; n.Kind {
	case k8sresourcelock.WatchConnected:
		ev.in.Kind, ev.in.Gap = core.Watching, n.Gap
		l.report.watching(nil)
	case k8sresourcelock.WatchDisconnected:
		if l.state.Watch { // a failed attempt must not delay a poll
			ev.in.Kind = core.Unwatched
		}
		if n.Err != nil {
			l.report.watching(n.Err)
		}
	case k8sresourcelock.Changed:
		snap, err := n.Snapshot.Decode()
		if err != nil {
			l.report.watching(err)
			return
		}
		ev.in.Kind, ev.in.Snap, ev.lock = core.Seen, snap, n.Snapshot
	}
}

// rewound restarts the watch, because the store was restored to an older version.
func (l *loop) rewound() {
	if l.watch != nil {
		l.watch.StoreRestored(l.base.ResourceVersion)
	}
}
