package controllerruntime

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection/gate"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

func TestIgnoreNotLeader(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	defer cancel()
	broken := errors.New("broken")
	for _, c := range []struct {
		name      string
		err, want error
		ends      bool // during the reconcile
	}{
		{"success", nil, nil, false},
		{"not leader", &gate.NotLeaderError{}, nil, false},
		{"other error", broken, broken, false},
		{"unknown in the term", &gate.OutcomeUnknownError{}, gate.ErrOutcomeUnknown, false},
		{"unknown at its end", &gate.OutcomeUnknownError{}, nil, true},
		{"after the end", broken, nil, false},
	} {
		_, err := IgnoreNotLeader(reconcile.Reconciler(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
			if c.ends {
				cancel()
			}
			return reconcile.Result{}, c.err
		}))).Reconcile(ended, reconcile.Request{})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func TestGatedClient_NilGate(t *testing.T) {
	_, err := GatedClient(nil)(&rest.Config{Host: "http://127.0.0.1:1"}, client.Options{})
	wants(t, err, "gate is nil")
}

func TestGatedFake(t *testing.T) {
	clock := k8sleaderelection.NewClock(nil)
	g := gate.New("e", clock)
	c := GatedFake(g, fake.NewClientBuilder().WithStatusSubresource(&corev1.Pod{}).Build())
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n"}}
	merge := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"message":"m"}}`))
	writes := []struct {
		name string
		do   func() error
	}{
		{"create", func() error { return c.Create(t.Context(), pod) }},
		{"update", func() error { return c.Update(t.Context(), pod) }},
		{"patch", func() error { return c.Patch(t.Context(), pod, merge) }},
		{"status update", func() error { return c.Status().Update(t.Context(), pod) }},
		{"status patch", func() error { return c.Status().Patch(t.Context(), pod, merge) }},
		{"delete", func() error { return c.Delete(t.Context(), pod) }},
		{"delete all", func() error { return c.DeleteAllOf(t.Context(), pod, client.InNamespace("n")) }},
	}
	check := func(when string, want error) {
		for _, w := range writes {
			if err := w.do(); !errors.Is(err, want) {
				t.Errorf("%s %s: %v, want %v", w.name, when, err, want)
			}
		}
		if err := c.List(t.Context(), &corev1.PodList{}); err != nil {
			t.Errorf("list %s: %v", when, err)
		}
	}
	check("before the term", gate.ErrNotLeader)
	g.Set(k8sleaderelection.Term{Token: 1}, clock.Now().Plus(time.Minute))
	check("in the term", nil)
	g.Set(k8sleaderelection.Term{}, k8sleaderelection.Validity{})
	check("after the term", gate.ErrNotLeader)
}

// An elector of client-go leads with a ConfigMap lock, which client-go does not have, and releases it.
func TestClientGoLock(t *testing.T) {
	store := locktest.NewStore(locktest.ConfigMap)
	leads := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: ClientGoLock(store.Lock("a", "stable")), ReleaseOnCancel: true,
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: time.Second,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { close(leads) }, OnStoppedLeading: func() {}},
	})
	harness.Must(t, err)
	stop := harness.Background(t, func(ctx context.Context) error { elector.Run(ctx); return nil })
	<-leads
	if r := store.Snapshot().Record; r.HolderIdentity != "a" || r.HolderKey != "stable" {
		t.Errorf("record of the leader: %+v", r)
	}
	stop()
	if r := store.Snapshot().Record; r.HolderIdentity != "" || r.HolderKey != "" {
		t.Errorf("released record: %+v", r)
	}
}
