package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/hashicorp/go-multierror"

	"incumbent.dev/incumbent/internal/errlist"
)

// part is one of the things that a server is made of.
type part struct {
	name string
	// start readies it and returns soon; nil when there is nothing to ready.
	start func() error
	// run does its work until ctx ends, and returns when all of it has ended.
	run func(ctx context.Context) error
	// bound is how long run may take to end.
	bound time.Duration
}

// running is a part that was started.
type running struct {
	part
	cancel context.CancelFunc
	ended  chan error // has room for the one answer
}

var errStopTimeout = errors.New("did not stop in time")

// runParts starts parts one after the other, waits until ctx ends or a part does, and
// stops them in reverse. A part that ends by itself ends the others; the error says
// which, and what went wrong with any of them. stopping is called before the first of
// them is told to stop.
func runParts(ctx context.Context, log *slog.Logger, stopping func(), parts []part) error {
	var errs *multierror.Error
	var started []running
	early := make(chan string, len(parts))
	for _, p := range parts {
		if ctx.Err() != nil {
			break
		}
		if p.start != nil {
			if err := p.start(); err != nil {
				errs = multierror.Append(errs, fmt.Errorf("start %s: %w", p.name, err))
				break
			}
		}
		started = append(started, p.begin(ctx, early))
		log.Debug("started", "part", p.name)
	}
	if errs == nil {
		select {
		case <-ctx.Done():
			log.Info("stopping", "reason", context.Cause(ctx))
		case name := <-early:
			log.Error("a part ended early; stopping", "part", name)
			errs = multierror.Append(errs, fmt.Errorf("%s ended early", name))
		}
	}
	stopping()
	for _, r := range slices.Backward(started) {
		if err := r.stop(); err != nil {
			errs = multierror.Append(errs, fmt.Errorf("%s: %w", r.name, err))
		}
		log.Debug("stopped", "part", r.name)
	}
	return errlist.Error(errs)
}

// begin runs a part with a context that outlives ctx: stop ends it, in its turn.
func (p part) begin(ctx context.Context, early chan<- string) running {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := running{part: p, cancel: cancel, ended: make(chan error, 1)}
	go func() {
		err := p.run(ctx)
		if ctx.Err() == nil {
			early <- p.name
		}
		r.ended <- err
	}()
	return r
}

// stop ends a part and waits for that, within its bound.
func (r running) stop() error {
	r.cancel()
	late := time.NewTimer(r.bound)
	defer late.Stop()
	select {
	case err := <-r.ended:
		return err
	case <-late.C:
		return fmt.Errorf("%w: %v", errStopTimeout, r.bound)
	}
}
