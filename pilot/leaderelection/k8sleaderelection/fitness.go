package k8sleaderelection

import (
	"context"
	"fmt"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// checkFitness asks the Fit function once per RetryPeriod, and posts each change of its
// answer. A check has a RetryPeriod's time; one that has not answered by then has said
// no. Until the first answer the candidate counts as unfit: see newLoop.
func (l *loop) checkFitness(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for unfit := true; ; pause.Reset(l.core.Retry) {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		err := l.fit(ctx)
		if ctx.Err() != nil {
			return
		}
		l.report.fitness(err)
		if unfit == (err != nil) {
			continue
		}
		unfit = err != nil
		l.post(&event{in: core.Input{Kind: core.Fitness, Unfit: unfit}})
	}
}

func (l *loop) fit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.core.Retry)
	defer cancel()
	if err := l.le.config.Fit(ctx); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("the check took longer than a RetryPeriod of %v", l.core.Retry)
	}
	return nil
}
