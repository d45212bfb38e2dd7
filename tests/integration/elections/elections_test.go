package elections

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/admin"
	"incumbent.dev/incumbent/pkg/kube"
)

// A candidate replaces an unreadable record after a lease duration, and keeps labels, annotations and data of others.
func TestRecordUnreadable(t *testing.T) {
	t.Parallel()
	x := newFixture(t, leaderelection.LockTypeConfigMap)
	x.editLock(func(obj metav1.Object) {
		obj.SetLabels(map[string]string{"team": "mesh"})
		annotate(obj, "note", "keep")
		obj.(*corev1.ConfigMap).Data = map[string]string{"other": "data"}
	})
	a := x.candidate("a", "stable", short).start(t)
	eventually(t, "a leads", a.Live)
	x.editLock(func(obj metav1.Object) { annotate(obj, "control-plane.alpha.kubernetes.io/leader", "{nonsense") })
	eventually(t, "a leads again", func() bool { return len(a.Spans()) == 2 })
	spans := a.Spans()
	if waited := spans[1].From.Sub(spans[0].Told); waited < shortLease-time.Second {
		t.Errorf("a replaced the record after %v, before a lease had passed", waited)
	}
	x.editLock(func(obj metav1.Object) {
		if obj.GetLabels()["team"] != "mesh" || obj.GetAnnotations()["note"] != "keep" || obj.(*corev1.ConfigMap).Data["other"] != "data" {
			t.Errorf("the candidate changed data of others: %+v", obj)
		}
	})
	if a.log.Count("lock record is unreadable") != 1 {
		t.Error("the unreadable record was not logged")
	}
}

// pair starts a leader of the default revision stable, and a follower of canary.
func (x *fixture) pair(t *testing.T, options ...func(*leaderelection.Config)) (a, b *candidate, h *history) {
	t.Helper()
	h = x.history()
	x.setDefault("stable")
	a = x.ranked("a", "stable", options...).start(t)
	h.await("a 0, leads")
	eventually(t, "a leads", a.Live)
	b = x.ranked("b", "canary", options...).start(t)
	eventually(t, "b follows", b.follows("a"))
	return a, b, h
}

func TestHandover(t *testing.T) {
	eachLock(t, func(t *testing.T, x *fixture) {
		a, b, h := x.pair(t)
		a.lingers.Store(true)
		x.setDefault("canary")
		eventually(t, "a drains", func() bool { return a.Live() && !a.Last().Told.IsZero() })
		if b.Live() || b.IsLeader() || !a.IsLeader() {
			t.Errorf("while a drains: a leads %v, b leads %v, b runs %v", a.IsLeader(), b.IsLeader(), b.Live())
		}
		a.lingers.Store(false)
		eventually(t, "b leads", b.Live)
		h.expect(handover("a", "b", 0)...)
		x.setDefault("stable")
		eventually(t, "a leads again", func() bool { return len(a.Spans()) == 2 && a.Live() })
		h.expect(append(handover("a", "b", 0), handover("b", "a", 1)[1:]...)...)
		lives.Apart(t, a, b)
	})
}

// The leader writes a handover again that timed out. If the first one still arrives, the API server rejects it.
func TestHandover_LateWrite(t *testing.T) {
	eachLock(t, func(t *testing.T, x *fixture) {
		a, b, h := x.pair(t)
		a.transport.delaying.Store(true)
		x.setDefault("canary")
		eventually(t, "b leads", b.Live)
		close(a.transport.release)
		if code := <-a.transport.answered; code != http.StatusConflict {
			t.Errorf("the late write was answered with status %d, want a conflict", code)
		}
		h.renewals(1)
		h.expect(handover("a", "b", 0)...)
		lives.Apart(t, a, b)
	})
}

// An istiod cannot hand over. A candidate of higher rank preempts it and settles. If the istiod overwrites the
// candidate, its term ends and it writes nothing.
func TestIstiodInElection(t *testing.T) {
	eachLock(t, func(t *testing.T, x *fixture) {
		h := x.history()
		x.setDefault("canary")
		x.writeIstiod("stable", 3)
		b := x.ranked("b", "canary", short).start(t)
		preempted := h.await("b 4")
		eventually(t, "b leads", b.Live)
		// The watch of the test can return the change later than the watch of b.
		if settled := b.Last().From.Sub(preempted); settled < shortLease-4*time.Second {
			t.Errorf("b started %v after it had preempted istiod, before its lease had expired", settled)
		}
		h.expect("istiod 3", "b 4", "b 4, leads")
		x.writeIstiod("canary", 5)
		eventually(t, "b stops", func() bool { return !b.Live() && !b.IsLeader() })
		if reason := b.Status().Reason; reason != "superseded" {
			t.Errorf("b stopped with the reason %s", reason)
		}
		h.expect("istiod 3", "b 4", "b 4, leads", "istiod 5, marker of b 4 handover")
	})
}

func TestOperator(t *testing.T) {
	eachLock(t, func(t *testing.T, x *fixture) {
		a, b, h := x.pair(t)
		operator, err := x.candidate("operator", "stable").Operator("alice")
		if err != nil {
			t.Fatal(err)
		}
		if err := operator.Transfer(t.Context(), "b", "canary", "before the upgrade", time.Hour); err != nil {
			t.Fatal(err)
		}
		eventually(t, "b leads", b.Live)
		if err := operator.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a, which outranks b, leads", a.Live)
		if err := operator.Pause(t.Context(), "maintenance", time.Hour); err != nil {
			t.Fatal(err)
		}
		x.setDefault("canary")
		eventually(t, "b has seen the default revision", func() bool { return b.Status().Default == "canary" })
		h.renewals(2)
		if steps := h.steps(); steps[len(steps)-1] != "a 2, leads" {
			t.Errorf("the election is paused, and the lock is %q", steps[len(steps)-1])
		}
		if err := operator.StepDown(t.Context(), "maintenance", time.Minute); err != nil {
			t.Fatal(err)
		}
		eventually(t, "b leads", b.Live)
		if err := operator.Resume(t.Context()); !errors.Is(err, admin.ErrNoHold) {
			t.Errorf("resume in the next term: %v", err)
		}
		lives.Apart(t, a, b)
	})
}

// Istio's constructors use its default revision, its lock types and its keys.
func TestConstructors(t *testing.T) {
	for name, test := range map[string]struct {
		make func(namespace string, client kube.Client) *leaderelection.LeaderElection
		lock leaderelection.LockType
		key  string
	}{
		"Lease": {func(namespace string, client kube.Client) *leaderelection.LeaderElection {
			return leaderelection.NewLeaseLeaderElection(namespace, "pilot-1", election, "stable", client)
		}, leaderelection.LockTypeLease, "stable"},
		"multicluster, remote": {func(namespace string, client kube.Client) *leaderelection.LeaderElection {
			return leaderelection.NewLeaderElectionMulticluster(namespace, "pilot-1", election, "stable", true, client)
		}, leaderelection.LockTypeConfigMap, "^stable"},
	} {
		t.Run(name, func(t *testing.T) {
			x := newFixture(t, test.lock)
			x.system = "istio-system"
			x.setDefault("stable")
			h := x.history()
			c := x.candidate("pilot-1", "stable")
			tokens := make(chan uint64, 1)
			started := make(chan struct{})
			c.LeaderElection = test.make(x.namespace, c.client).
				AddRunFunction(func(stop <-chan struct{}) { close(started); <-stop }).
				AddRunContext(func(ctx context.Context) error {
					term, _ := k8sleaderelection.TermFromContext(ctx)
					tokens <- term.Token
					<-ctx.Done()
					return nil
				})
			run(t, func(ctx context.Context) { c.Run(ctx.Done()) })
			<-started
			if token := <-tokens; token == 0 || fmt.Sprint(token) != fmt.Sprint(c.Status().Token) {
				t.Errorf("the run function has the token %d, the status %v", token, c.Status().Token)
			}
			if holder, key := c.Leader(); !c.IsLeader() || holder != "pilot-1" || key != test.key {
				t.Errorf("leads %v, record %q %q", c.IsLeader(), holder, key)
			}
			h.await("pilot-1 0, leads")
		})
	}
}
