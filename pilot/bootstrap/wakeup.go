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

// onTerms nudges whenever a term of an election begins or has ended. The run function that
// does so is one of those that the election waits for, and ends at once.
func (w wakeup) onTerms(le *leaderelection.LeaderElection) {
	le.AddRunContext(func(ctx context.Context) error {
		w.nudge()
		<-ctx.Done()
		w.nudge()
		return nil
	})
}
