package k8sleaderelection

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/codec"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// call is one ended request for the lock, with its result.
type call struct {
	op     core.Op
	result core.Result
	err    error
	took   time.Duration
}

// send makes the action's call. It always ends, by its own deadline, and always posts
// exactly one reply.
func (l *loop) send(a core.Action) {
	base := l.base
	ctx, cancel := context.WithTimeout(l.values, l.core.CallTimeout)
	l.helpers.Add(1)
	decided := l.le.clock.mono()
	l.shared.Call(ctx, l.core.CallTimeout/2, func(ended func()) {
		defer l.helpers.Done()
		ev := l.exchange(ctx, a, base, decided)
		cancel()
		ended()
		l.post(ev)
	}, func() {
		defer l.helpers.Done()
		ev := &event{in: core.Input{Kind: core.Replied, Result: core.Unknown}}
		ev.call = call{a.Op, core.Unknown, errNotSent, decided.Until(l.le.clock.mono())}
		l.post(ev)
	})
}

// errNotSent is why a call was never made.
var errNotSent = errors.New("not sent: others were before it when the elector ended")

// exchange is the call itself, and what came of it. It counts from when it was decided on,
// as the cover that it brings does.
func (l *loop) exchange(ctx context.Context, a core.Action, base k8sresourcelock.Snapshot, decided core.Instant) *event {
	snap, err := l.request(ctx, a, base)
	ev := &event{in: core.Input{Kind: core.Replied}, lock: snap}
	if err == nil {
		ev.in.Snap, err = l.le.codec.Snapshot(snap)
	}
	ev.in.Result = resultOf(err)
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok && ev.in.Result == core.Refused {
		ev.in.RetryAfter = time.Duration(min(max(seconds, 0), maxRetryAfter)) * time.Second
	}
	ev.call = call{a.Op, ev.in.Result, err, decided.Until(l.le.clock.mono())}
	return ev
}

func (l *loop) request(ctx context.Context, a core.Action, base k8sresourcelock.Snapshot) (k8sresourcelock.Snapshot, error) {
	if a.Op == core.Read {
		return l.le.lock.Read(ctx)
	}
	record, notes := codec.EncodeRecord(a.Record), codec.EncodeAnnotations(a.Annotations)
	if lock, ok := l.le.lock.(k8sresourcelock.Annotated); ok && a.Op == core.SendRequest {
		return lock.Annotate(ctx, base, notes)
	}
	return l.le.lock.Write(ctx, base, record, notes)
}

// maxRetryAfter keeps an absurd wish from overflowing a Duration; the core bounds it further.
const maxRetryAfter = 3600

// fromServer reports whether err is an API server's answer.
func fromServer(err error) bool { return errors.As(err, new(apierrors.APIStatus)) }

// resultOf sorts errors by what they prove. A conflict and a refusal prove that nothing was
// written; anything else, a time-out above all, leaves it open.
func resultOf(err error) core.Result {
	switch {
	case err == nil:
		return core.OK
	case k8sresourcelock.IsConflict(err):
		return core.Conflict
	case k8sresourcelock.IsRefused(err):
		return core.Refused
	}
	return core.Unknown
}
