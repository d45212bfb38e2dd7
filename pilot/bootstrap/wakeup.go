package bootstrap

import (
	"context"

	"incumbent.dev/incumbent/pilot/leaderelection"
)

// wakeup wakes what looks at all elections whenever one of them needs it. It has room for
// one: what has come while the last look was under way makes one further look.
type wakeup chan struct{}

func newWakeup() wakeup { return make(wakeup, 1) }

func (w wakeup) nudge() {
	select {
	case w <- struct{}{}:
	default: // one is due anyway
	}
}

func (w wakeup) onTerms(le *leaderelection.LeaderElection) { onTerms(le, w.nudge) }

// onTerms calls wake whenever a term of the election begins or ends.
func onTerms(le *leaderelection.LeaderElection, wake func()) {
	le.AddRunContext(func(ctx context.Context) error {
		wake()
		<-ctx.Done()
		wake()
		return nil
	})
}
