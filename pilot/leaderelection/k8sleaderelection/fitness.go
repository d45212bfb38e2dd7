package k8sleaderelection

import (
	"context"
	"fmt"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// checkFitness asks the Fit function once per RetryPeriod, and posts each change of its
// answer. A check has a RetryPeriod's time; one that has not answered by then has said
// no, and no other is made before it has returned. Until the first answer the candidate
// counts as unfit: see newLoop.
func (l *loop) checkFitness(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	var f fitCheck
	defer func() { f.end(l) }()
	for unfit := true; ; pause.Reset(l.core.Retry) {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		err := f.ask(ctx, l)
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

// fitCheck is a call of the Fit function, which may ignore the end of its context.
type fitCheck struct {
	answer chan error // nil: none is under way
}

// ask returns the check's answer, or an error when it has none in time.
func (f *fitCheck) ask(ctx context.Context, l *loop) error {
	ctx, cancel := context.WithTimeout(ctx, l.core.Retry)
	defer cancel()
	if f.answer == nil {
		answer := make(chan error, 1)
		f.answer = answer
		go func() {
			err := ErrGoexit // unless the function returns
			defer func() { answer <- err }()
			if err = l.le.config.FitnessCheck(ctx); err == nil && ctx.Err() != nil {
				err = errUnanswered(l)
			}
		}()
	}
	select {
	case err := <-f.answer:
		f.answer = nil
		return err
	case <-ctx.Done():
		return errUnanswered(l)
	}
}

func errUnanswered(l *loop) error {
	return fmt.Errorf("fitness check did not return within RetryPeriod %v", l.core.Retry)
}

// end gives a check that is under way the time to notice that its context has ended.
func (f *fitCheck) end(l *loop) {
	if f.answer == nil {
		return
	}
	limit := time.NewTimer(l.core.Retry)
	defer limit.Stop()
	select {
	case <-f.answer:
	case <-limit.C:
		l.report.log.Error("fitness check did not return after the end of its context")
	}
}
