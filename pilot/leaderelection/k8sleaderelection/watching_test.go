package k8sleaderelection

import (
	"errors"
	"strings"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

func TestDecodeWatchEvent(t *testing.T) {
	store := locktest.NewStore(locktest.ConfigMap)
	for name, c := range map[string]struct {
		news    k8sresourcelock.Event
		watched bool // before the event
		failed  bool // a failure was logged before
		want    core.Input
		log     string
	}{
		"up":                 {k8sresourcelock.Event{Kind: k8sresourcelock.WatchConnected}, false, false, core.Input{Kind: core.Watching}, ""},
		"up after a gap":     {k8sresourcelock.Event{Kind: k8sresourcelock.WatchConnected, Gap: true}, false, false, core.Input{Kind: core.Watching, Gap: true}, ""},
		"up after a failure": {k8sresourcelock.Event{Kind: k8sresourcelock.WatchConnected}, false, true, core.Input{Kind: core.Watching}, "watch of the lock is established again"},
		"down":               {k8sresourcelock.Event{Kind: k8sresourcelock.WatchDisconnected}, true, true, core.Input{Kind: core.Unwatched}, ""},
		"down with an error": {k8sresourcelock.Event{Kind: k8sresourcelock.WatchDisconnected, Err: errors.New("x")}, true, false, core.Input{Kind: core.Unwatched}, "failed to watch the lock"},
		"failed attempt":     {k8sresourcelock.Event{Kind: k8sresourcelock.WatchDisconnected, Err: errors.New("x")}, false, false, core.Input{}, "failed to watch the lock"},
		"invalid version":    {k8sresourcelock.Event{Kind: k8sresourcelock.Changed, Snapshot: k8sresourcelock.Snapshot{Exists: true, ResourceVersion: "1a"}}, true, false, core.Input{}, "1a"},
	} {
		r, _, log := reporting(t)
		l := idleLoop(t, store.Lock("a", "stable").Plain())
		l.report = r
		l.state.Watch = c.watched
		if c.failed {
			r.watching(errors.New("x"))
			log.Reset()
		}
		ev := &event{watched: &c.news}
		if l.decodeWatchEvent(ev); ev.in != c.want || (log.String() != "") != (c.log != "") || !strings.Contains(log.String(), c.log) {
			t.Errorf("%s: %+v, log %q", name, ev.in, log)
		}
	}
}
