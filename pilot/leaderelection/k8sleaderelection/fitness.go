package k8sleaderelection

import (
	"context"
	"fmt"
	"time"
)

// checkFitness calls FitnessCheck once per RetryPeriod and calls SetUnfit with its result. A check that does not
// return in time counts as unfit, and the next one starts only after it returned.
func (l *loop) checkFitness(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	var f fitCheck
	for ; ; pause.Reset(l.core.Retry) {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		err := f.result(ctx, l)
		if ctx.Err() != nil {
			return
		}
		l.report.fitness(err)
		l.le.SetUnfit(err != nil)
	}
}

// fitCheck is a call of FitnessCheck, which may ignore the end of its context.
type fitCheck struct {
	done chan error // nil if no check is running
}

// result returns the result of the check, or an error after a RetryPeriod.
func (f *fitCheck) result(ctx context.Context, l *loop) error {
	ctx, cancel := context.WithTimeout(ctx, l.core.Retry)
	defer cancel()
	if f.done == nil {
		done := make(chan error, 1)
		f.done = done
		l.le.hooks.Go(func() {
			err := ErrGoexit // unless the function returns
			defer func() { done <- err }()
			if err = l.le.config.FitnessCheck(ctx); err == nil && ctx.Err() != nil {
				err = errCheckTimeout(l)
			}
		})
	}
	select {
	case err := <-f.done:
		f.done = nil
		return err
	case <-ctx.Done():
		return errCheckTimeout(l)
	}
}

func errCheckTimeout(l *loop) error {
	return fmt.Errorf("fitness check did not return within RetryPeriod %v", l.core.Retry)
}
