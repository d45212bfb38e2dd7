package k8sleaderelection

import (
	"context"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// call is what became of one request for the lock.
type call struct {
	op     core.Op
	result core.Result
	err    error
	took   time.Duration
}

// send makes the action's call. It always ends, by its own deadline, and always posts
// exactly one reply.
func (l *loop) send(ctx context.Context, a core.Action) {
	base := l.base
	l.helpers.Go(func() {
		call, cancel := context.WithTimeout(ctx, l.core.CallTimeout)
		defer cancel()
		sent := l.le.clock.Now().Mono
		snap, err := l.request(call, a, base)
		ev := &event{in: core.Input{Kind: core.Replied}, lock: snap}
		if err == nil {
			ev.in.Snap, err = l.le.codec.snapshot(snap)
		}
		ev.in.Result = resultOf(err)
		ev.call = callOf(a.Op, ev.in.Result, err, sent.Until(l.le.clock.Now().Mono))
		l.replies <- ev
	})
}

func (l *loop) request(ctx context.Context, a core.Action, base k8sresourcelock.Snapshot) (k8sresourcelock.Snapshot, error) {
	if a.Op == core.Read {
		return l.le.lock.Read(ctx)
	}
	if lock, ok := l.le.lock.(k8sresourcelock.Annotated); ok && a.Op == core.Ask {
		return lock.Annotate(ctx, base, encodeNotes(a.Notes))
	}
	return l.le.lock.Write(ctx, base, encodeRecord(a.Record), encodeNotes(a.Notes))
}

// resultOf sorts errors by what they prove. Only a conflict proves that nothing was
// written; anything else, a time-out above all, leaves it open.
func resultOf(err error) core.Result {
	switch {
	case err == nil:
		return core.OK
	case k8sresourcelock.IsConflict(err):
		return core.Conflict
	}
	return core.Unknown
}

func callOf(op core.Op, result core.Result, err error, took time.Duration) call {
	return call{op: op, result: result, err: err, took: took}
}
