package k8sleaderelection

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// call is an ended request for the lock, with its result.
type call struct {
	op     core.Op
	result core.Result
	err    error
	took   time.Duration
	// died is the time from the end of the former leader until its witness released the lock that this process acquired.
	died time.Duration
}

// send starts the call of an action, if it has one. Otherwise it cancels a call in flight whose answer is of no use any more.
// Each call posts exactly one reply.
func (l *loop) send(a core.Action) {
	decided := l.le.clock.mono()
	if a.Op == core.NoOp {
		// The context ends the call at its own time, which shows that its connection may be dead.
		if f := l.state.Flight; f.Op != core.NoOp && a.Until <= decided && a.Until < f.Until {
			l.cancelCall()
		}
		return
	}
	base := l.base
	dryRun := l.rejected != "" && a.Op == core.SendRequest
	ctx, cancel := context.WithTimeout(l.values, decided.Until(a.Until))
	l.cancelCall = cancel
	l.helpers.Add(1)
	died := l.state.Snap.WitnessRelease()
	l.shared.Call(ctx, l.core.Retry/2, func(ended func()) {
		defer l.helpers.Done()
		ev := l.exchange(ctx, a, base, decided, dryRun)
		if a.Op == core.Acquire && ev.call.result == core.OK {
			ev.call.died = died
		}
		cancel()
		ended()
		l.post(ev)
	}, func() {
		defer l.helpers.Done()
		ev := &event{in: core.Input{Kind: core.Replied, Result: core.Unknown}}
		ev.call = call{op: a.Op, result: core.Unknown, err: errNotSent, took: decided.Until(l.le.clock.mono())}
		l.post(ev)
	})
}

// errNotSent is the error of a call that was never sent.
var errNotSent = errors.New("not sent: too many calls in flight")

// exchange makes the call and returns its reply. Its duration counts from the decision, as the validity does.
func (l *loop) exchange(ctx context.Context, a core.Action, base k8sresourcelock.Snapshot, decided core.Instant, dryRun bool) *event {
	var (
		snap k8sresourcelock.Snapshot
		err  error
	)
	if dryRun {
		err = l.le.dryRunAcquire(ctx, base)
	}
	if !k8sresourcelock.IsRefused(err) { // another result of the dry run proves nothing
		snap, err = l.request(ctx, a, base)
	}
	ev := &event{in: core.Input{Kind: core.Replied}, lock: snap}
	if err == nil {
		ev.in.Snap, err = snap.Decode()
	}
	ev.in.Result = resultOf(err)
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok && ev.in.Result == core.Refused {
		ev.in.RetryAfter = time.Duration(min(max(seconds, 0), maxRetryAfter)) * time.Second
	}
	ev.call = call{op: a.Op, result: ev.in.Result, err: err, took: decided.Until(l.le.clock.mono())}
	return ev
}

// barredError is the rejection of a dry-run acquisition.
type barredError struct{ err error }

func (e barredError) Error() string { return "dry run of an acquisition: " + e.err.Error() }

func (e barredError) Unwrap() error { return e.err }

// ProveAcquire returns an error if the lock cannot be read, or if the API server would reject an acquisition by this candidate.
func (le *LeaderElector) ProveAcquire(ctx context.Context) error {
	base, err := le.lock.Read(ctx)
	if err != nil {
		return barredError{err}
	}
	if err := le.dryRunAcquire(ctx, base); err != nil && !k8sresourcelock.IsConflict(err) {
		return err
	}
	return nil
}

func (le *LeaderElector) dryRunAcquire(ctx context.Context, base k8sresourcelock.Snapshot) error {
	now := metav1.Now().Rfc3339Copy()
	err := le.lock.DryRun(ctx, base, k8sresourcelock.LeaderElectionRecord{
		HolderIdentity: le.core.Self, HolderKey: le.core.Key, LeaseDurationSeconds: int(le.core.Lease / time.Second),
		AcquireTime: now, RenewTime: now, LeaderTransitions: base.Record.LeaderTransitions + 1,
	}, base.Annotations)
	if err != nil {
		return barredError{err}
	}
	return nil
}

func (l *loop) request(ctx context.Context, a core.Action, base k8sresourcelock.Snapshot) (k8sresourcelock.Snapshot, error) {
	if a.Op == core.Read {
		return l.le.lock.Read(ctx)
	}
	stored, notes := k8sresourcelock.Encode(a.Record), a.Annotations.Encode()
	if a.Unprefer {
		notes[record.PreferredHolderAnnotation] = ""
	}
	if a.Op == core.SendRequest {
		return l.le.lock.Annotate(ctx, base, notes)
	}
	return l.le.lock.Write(ctx, base, stored, notes)
}

// maxRetryAfter, in seconds, prevents an overflow of Duration. The core limits the delay further.
const maxRetryAfter = 3600

// fromServer reports whether err is a response of an API server.
func fromServer(err error) bool { return errors.As(err, new(apierrors.APIStatus)) }

// resultOf classifies an error. After a conflict or a refusal, nothing was written. After any other
// error, the write may have been stored. If one of two attempts was rejected, the other may have been stored.
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
