package k8sleaderelection

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// answering is a lock whose calls say what they are asked, and with which deadline.
type answering struct {
	k8sresourcelock.Versioned
	err   error
	left  time.Duration
	takes time.Duration
	asked []string
}

func (a *answering) note(ctx context.Context, what string) (k8sresourcelock.Snapshot, error) {
	deadline, _ := ctx.Deadline()
	a.left, a.asked = time.Until(deadline), append(a.asked, what)
	<-time.After(a.takes)
	return k8sresourcelock.Snapshot{}, a.err
}

func (a *answering) Read(ctx context.Context) (k8sresourcelock.Snapshot, error) {
	return a.note(ctx, "read")
}

func (a *answering) Write(ctx context.Context, _ k8sresourcelock.Snapshot, _ k8sresourcelock.LeaderElectionRecord, _ map[string]string) (k8sresourcelock.Snapshot, error) {
	return a.note(ctx, "write")
}

// annotating can be annotated, too.
type annotating struct{ *answering }

func (a annotating) Annotate(ctx context.Context, _ k8sresourcelock.Snapshot, _ map[string]string) (k8sresourcelock.Snapshot, error) {
	return a.note(ctx, "annotate")
}

func TestWhatBecomesOfACall(t *testing.T) {
	resource := schema.GroupResource{Resource: "locks"}
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		op     core.Op
		err    error
		result core.Result
		after  time.Duration
		asked  string
	}{
		"a read":                {core.Read, nil, core.OK, 0, "read"},
		"a renewal":             {core.Renew, nil, core.OK, 0, "write"},
		"a request":             {core.SendRequest, nil, core.OK, 0, "annotate"},
		"a request that fails":  {core.SendRequest, broken, core.Unknown, 0, "annotate"},
		"a conflict":            {core.Renew, k8sresourcelock.ErrConflict, core.Conflict, 0, "write"},
		"too many":              {core.Renew, apierrors.NewTooManyRequests("x", 7), core.Refused, 7 * time.Second, "write"},
		"far too many":          {core.Renew, apierrors.NewTooManyRequests("x", 1<<30), core.Refused, time.Hour, "write"},
		"too many, before now":  {core.Renew, apierrors.NewTooManyRequests("x", -7), core.Refused, 0, "write"},
		"forbidden":             {core.Renew, apierrors.NewForbidden(resource, "x", nil), core.Refused, 0, "write"},
		"a server that is slow": {core.Renew, apierrors.NewServerTimeout(resource, "update", 5), core.Unknown, 0, "write"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := locktest.NewStore(locktest.ConfigMap)
				lock := &answering{Versioned: store.Lock("a", "stable").Unwatched(), err: c.err, takes: time.Second}
				d := &k8sresourcelock.Shared{CallsAtOnce: 1}
				epoch := time.Now()
				l := stillLoop(t, annotating{lock}, func(config *LeaderElectionConfig) {
					config.Shared, config.Clock = d, NewClock(func() int64 { return int64(time.Since(epoch)) })
				})
				l.send(core.Action{Op: c.op})
				l.helpers.Wait()
				ev := <-l.events
				if ev.in.Result != c.result || ev.in.RetryAfter != c.after || ev.call.op != c.op || !errors.Is(ev.call.err, c.err) || ev.call.took != time.Second {
					t.Errorf("%+v, %+v", ev.in, ev.call)
				}
				if len(lock.asked) != 1 || lock.asked[0] != c.asked || lock.left != l.core.CallTimeout {
					t.Errorf("asked %q, within %v", lock.asked, lock.left)
				}
				next := false // the first call has made room for another
				d.Call(t.Context(), time.Hour, func(ended func()) { next = true; ended() }, func() {})
				if synctest.Wait(); !next {
					t.Error("the call is still under way")
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		lock := &answering{Versioned: locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Unwatched()}
		l := stillLoop(t, lock) // which cannot be annotated
		l.send(core.Action{Op: core.SendRequest})
		l.helpers.Wait()
		if len(lock.asked) != 1 || lock.asked[0] != "write" {
			t.Errorf("asked %q", lock.asked)
		}
	})
	if fromServer(broken) || !fromServer(apierrors.NewForbidden(resource, "x", nil)) {
		t.Error("what an API server has answered is not told from other errors")
	}
}

func TestAClockWithAnotherWall(t *testing.T) {
	clock := NewClock(func() int64 { return 5 })
	if got := clock.WithWall(func() int64 { return 7 }).Now(); got.Wall != 7 || got.Boot != 5 {
		t.Errorf("%+v", got)
	}
	if got := clock.Now(); got.Wall < time.Now().Add(-time.Hour).UnixNano() {
		t.Errorf("%+v", got)
	}
}
