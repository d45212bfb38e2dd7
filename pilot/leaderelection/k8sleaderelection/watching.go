package k8sleaderelection

import (
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// startWatching follows the lock, if it can be watched.
func (l *loop) startWatching() {
	l.watch = k8sresourcelock.Subscribe(l.values, l.le.lock, func() { l.signal(watchEvent) })
}

// takeNews takes in what the watch has to tell, each of it in a pass of its own.
func (l *loop) takeNews() {
	if l.watch == nil {
		return
	}
	for _, n := range l.watch.Next() {
		if l.state.Phase == core.Done {
			return // the news before it has ended the run
		}
		l.pass(&event{news: &n})
	}
}

// decodeNews turns news into an input.
func (l *loop) decodeNews(ev *event) {
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
		snap, err := l.le.codec.Snapshot(n.Snapshot)
		if err != nil {
			l.report.watching(err)
			return
		}
		ev.in.Kind, ev.in.Snap, ev.lock = core.Seen, snap, n.Snapshot
	}
}

// rewound has the watch begin anew: the store has gone back in time.
func (l *loop) rewound() {
	if l.watch != nil {
		l.watch.Rewound(l.base.ResourceVersion)
	}
}
