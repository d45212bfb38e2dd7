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

// part is a component of a server with its own lifetime.
type part struct {
	name string
	// start prepares the part and returns soon. Optional.
	start func() error
	// run works until ctx ends, and returns when everything it started has ended.
	run func(ctx context.Context) error
	// bound is the maximum time for run to return after ctx has ended.
	bound time.Duration
}

// running is a started part.
type running struct {
	part
	cancel context.CancelFunc
	ended  chan error // has room for one error
}

var errStopTimeout = errors.New("did not stop in time")

// runParts starts parts one after the other, waits until ctx ends or a part ends, and stops the parts in reverse order. A
// part that ends early stops the others. The error names it and has the errors of all parts. stopping is called before
// the first part is canceled.
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

// begin runs a part with a context that stop cancels, because ctx ends before the part's turn.
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

// stop cancels a part and waits until it ends, within its bound.
func (r running) stop() error {
	r.cancel()
	select {
	case err := <-r.ended:
		return err
	case <-time.After(r.bound):
		return fmt.Errorf("%w: %v", errStopTimeout, r.bound)
	}
}
