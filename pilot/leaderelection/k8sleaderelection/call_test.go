package k8sleaderelection

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// callTakes is how long a call of a fakeLock takes. It is too short for a second attempt.
const callTakes = 400 * time.Millisecond

// fakeLock records the method and the context of each call. Each call takes callTakes and returns err.
type fakeLock struct {
	k8sresourcelock.Lock
	err   error
	calls []string
	ctx   context.Context
	left  time.Duration // until the deadline of ctx
}

func (f *fakeLock) call(ctx context.Context, method string) (k8sresourcelock.Snapshot, error) {
	deadline, _ := ctx.Deadline()
	f.left = time.Until(deadline)
	f.ctx = ctx
	f.calls = append(f.calls, method)
	<-time.After(callTakes)
	return k8sresourcelock.Snapshot{}, f.err
}

func (f *fakeLock) Read(ctx context.Context) (k8sresourcelock.Snapshot, error) {
	return f.call(ctx, "read")
}

func (f *fakeLock) Write(ctx context.Context, _ k8sresourcelock.Snapshot, _ k8sresourcelock.LeaderElectionRecord, _ map[string]string) (k8sresourcelock.Snapshot, error) {
	return f.call(ctx, "write")
}

func (f *fakeLock) Annotate(ctx context.Context, _ k8sresourcelock.Snapshot, _ map[string]string) (k8sresourcelock.Snapshot, error) {
	return f.call(ctx, "annotate")
}

func TestSend(t *testing.T) {
	resource := schema.GroupResource{Resource: "locks"}
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		op         core.Op
		err        error
		result     core.Result
		retryAfter time.Duration
		call       string
	}{
		"read":                 {core.Read, nil, core.OK, 0, "read"},
		"renewal":              {core.Renew, nil, core.OK, 0, "write"},
		"request":              {core.SendRequest, nil, core.OK, 0, "annotate"},
		"failed request":       {core.SendRequest, broken, core.Unknown, 0, "annotate"},
		"conflict":             {core.Renew, k8sresourcelock.ErrConflict, core.Conflict, 0, "write"},
		"too many requests":    {core.Renew, apierrors.NewTooManyRequests("x", 7), core.Refused, 7 * time.Second, "write"},
		"retry-after too long": {core.Renew, apierrors.NewTooManyRequests("x", 1<<30), core.Refused, time.Hour, "write"},
		"negative retry-after": {core.Renew, apierrors.NewTooManyRequests("x", -7), core.Refused, 0, "write"},
		"forbidden":            {core.Renew, apierrors.NewForbidden(resource, "x", nil), core.Refused, 0, "write"},
		"one answer of two":    {core.Renew, apirequest.ErrOneAnswer, core.Unknown, 0, "write"},
		"server timeout":       {core.Renew, apierrors.NewServerTimeout(resource, "update", 5), core.Unknown, 0, "write"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := &fakeLock{Lock: locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Unwatched(), err: c.err}
				shared := &k8sresourcelock.Shared{MaxConcurrentCalls: 1}
				l := idleLoop(t, fake, func(config *LeaderElectionConfig) { config.Shared = shared })
				l.send(core.Action{Op: c.op, Until: l.le.clock.mono().After(3 * time.Second)})
				l.helpers.Wait()
				ev := <-l.events
				if ev.in.Result != c.result || ev.in.RetryAfter != c.retryAfter || ev.call.op != c.op || !errors.Is(ev.call.err, c.err) || ev.call.took != callTakes {
					t.Errorf("%+v, %+v", ev.in, ev.call)
				}
				if len(fake.calls) != 1 || fake.calls[0] != c.call || fake.left != 3*time.Second || !errors.Is(fake.ctx.Err(), context.Canceled) {
					t.Errorf("calls %q, timeout %v, context %v", fake.calls, fake.left, fake.ctx.Err())
				}
				free := false
				shared.Call(t.Context(), time.Hour, func(ended func()) { free = true; ended() }, func() {})
				if synctest.Wait(); !free {
					t.Error("the call still counts as in flight")
				}
			})
		})
	}
}

// The core ends a call whose answer is of no use any more.
func TestSend_Cancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := locktest.NewStore(locktest.ConfigMap)
		l := idleLoop(t, &hangingLock{Lock: store.Lock("a", "stable").Unwatched()}, func(*LeaderElectionConfig) {})
		end := l.le.clock.mono().After(2 * time.Second)
		l.send(core.Action{Op: core.Read, Until: end})
		l.state.Flight = core.Call{Op: core.Read, Until: end}
		l.send(core.Action{Until: end})
		synctest.Wait()
		if len(l.events) != 0 {
			t.Fatal("cancelled too early")
		}
		l.send(core.Action{Until: l.le.clock.mono()})
		l.helpers.Wait()
		if ev := <-l.events; ev.in.Kind != core.Replied || ev.in.Result != core.Unknown || ev.call.took != 0 {
			t.Errorf("%+v, %+v", ev.in, ev.call)
		}
	})
}

// hangingLock answers no read.
type hangingLock struct{ k8sresourcelock.Lock }

func (hangingLock) Read(ctx context.Context) (k8sresourcelock.Snapshot, error) {
	<-ctx.Done()
	return k8sresourcelock.Snapshot{}, ctx.Err()
}

// A call that waited until its context ended was not sent. Its duration is the time that it waited.
func TestSend_NotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &k8sresourcelock.Shared{MaxConcurrentCalls: 1}
		hang := make(chan struct{})
		shared.Call(t.Context(), time.Hour, func(ended func()) { <-hang; ended() }, func() {})
		l := idleLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Lock, func(c *LeaderElectionConfig) { c.Shared = shared })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l.values = ctx
		l.send(core.Action{Op: core.Renew, Until: core.Never})
		l.helpers.Wait()
		ev := <-l.events
		if ev.in.Kind != core.Replied || ev.in.Result != core.Unknown || ev.call.op != core.Renew || ev.call.result != core.Unknown ||
			!errors.Is(ev.call.err, errNotSent) || ev.call.took != time.Second {
			t.Errorf("%+v, %+v", ev.in, ev.call)
		}
		close(hang)
	})
}
