package library

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/electiontest"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
)

// double is a kube.Client of a unit test with a fake clientset.
type double struct{ clientset kubernetes.Interface }

func (d double) Kube() kubernetes.Interface { return d.clientset }
func (double) Dynamic() dynamic.Interface   { return nil }
func (double) RESTConfig() *rest.Config     { return nil }

// writes returns the number of updates.
func writes(c *fake.Clientset) (n int) {
	for _, a := range c.Actions() {
		if a.GetVerb() == "update" {
			n++
		}
	}
	return n
}

// elect returns an election of New with a fake clientset. Its leader leads on a slow machine too.
func elect(t *testing.T, client kube.Client, name, revision string, change func(*leaderelection.Config)) *leaderelection.LeaderElection {
	t.Helper()
	config := leaderelection.Config{
		Namespace: "istio-system", Identity: name, ElectionID: "an-election", Revision: revision,
		LeaseDuration: time.Minute, RenewDeadline: 40 * time.Second, RetryPeriod: time.Second,
	}
	change(&config)
	l, err := leaderelection.New(client, config)
	harness.Must(t, err)
	return l.AddRunFunction(func(stop <-chan struct{}) { <-stop })
}

// The elector warns once that the store has no compare-and-swap.
func TestFakeClientset_WarnsOnce(t *testing.T) {
	for _, lock := range []leaderelection.LockType{leaderelection.LockTypeConfigMap, leaderelection.LockTypeLease} {
		t.Run(string(lock), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := fake.NewClientset()
				var log harness.Log
				a := elect(t, double{store}, "a", "stable", func(c *leaderelection.Config) {
					c.Clock, c.Lock, c.Logger = electiontest.Clock(), lock, slog.New(slog.NewTextHandler(&log, nil))
				})
				harness.Background(t, a.RunContext)
				time.Sleep(time.Minute)
				if !a.IsLeader() || writes(store) < 50 {
					t.Errorf("a leads %v after %d renewals", a.IsLeader(), writes(store))
				}
				// A renewal is a read and an update. Other requests are sent at the start.
				if got, updates := len(store.Actions()), writes(store); got > 4*updates+40 {
					t.Errorf("%d requests for %d updates", got, updates)
				}
				if got := log.Count("lock has no resource versions"); got != 1 {
					t.Errorf("logged %d times:\n%s", got, &log)
				}
				if got := log.Count("level=WARN"); got > 1 {
					t.Errorf("%d warnings:\n%s", got, &log)
				}
				if got := log.Count("to=leading"); got != 1 {
					t.Errorf("%d terms:\n%s", got, &log)
				}
			})
		})
	}
}

// After the leader is gone, a follower leads as soon as the lease has expired, as in client-go. It does not wait for polls.
func TestFakeClientset_FailOver(t *testing.T) {
	const lease = 3 * time.Second
	gvr := coordinationv1.SchemeGroupVersion.WithResource("leases")
	for name, leave := range map[string]func(store *fake.Clientset, stop func()) error{
		"writes fail": func(*fake.Clientset, func()) error { return nil },
		"lock deleted": func(store *fake.Clientset, _ func()) error {
			return store.Tracker().Delete(gvr, "istio-system", "an-election")
		},
		"stops": func(_ *fake.Clientset, stop func()) error { stop(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := fake.NewClientset()
				var failing atomic.Bool
				store.PrependReactor("*", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
					w, ok := action.(clienttesting.CreateAction) // an UpdateAction too
					return ok && failing.Load() && *w.GetObject().(*coordinationv1.Lease).Spec.HolderIdentity == "a", nil, errors.New("cut off")
				})
				replica := func(identity string) (l *leaderelection.LeaderElection, stop func()) {
					l = elect(t, double{store}, identity, "stable", func(c *leaderelection.Config) {
						c.Clock, c.Logger = electiontest.Clock(), slog.New(slog.DiscardHandler)
						c.LeaseDuration, c.RenewDeadline = lease, 2*time.Second
					})
					stop = harness.Background(t, l.RunContext)
					synctest.Wait()
					return l, stop
				}
				a, stop := replica("a")
				b, _ := replica("b")
				time.Sleep(time.Minute)
				if !a.IsLeader() || b.IsLeader() {
					t.Fatal("a does not lead")
				}
				failing.Store(name != "stops")
				harness.Must(t, leave(store, stop))
				time.Sleep(lease)
				synctest.Wait()
				if a.IsLeader() || !b.IsLeader() {
					t.Errorf("after a lease: a leads %v, b leads %v", a.IsLeader(), b.IsLeader())
				}
			})
		})
	}
}

// A fake clientset ignores field selectors. The watcher reads only its own webhook.
func TestDefaultWatcher_FakeClientset(t *testing.T) {
	hook := func(name, revision string) *admissionv1.MutatingWebhookConfiguration {
		return &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"istio.io/rev": revision}}}
	}
	for kind, store := range map[string]kubernetes.Interface{
		"NewClientset":       fake.NewClientset(hook("another", "blue")),
		"NewSimpleClientset": fake.NewSimpleClientset(hook("another", "blue")), //nolint:staticcheck // people's tests use it
	} {
		t.Run(kind, func(t *testing.T) {
			w := revisions.NewDefaultWatcher(double{store}, "red", "")
			harness.Background(t, func(ctx context.Context) error { w.Run(ctx.Done()); return nil })
			harness.Until(t, "synced", w.HasSynced)
			if got := w.GetDefault(); got != "" {
				t.Errorf("another webhook's revision counts: %q", got)
			}
			hooks := store.AdmissionregistrationV1().MutatingWebhookConfigurations()
			if _, err := hooks.Create(t.Context(), hook(tagging.DefaultTagWebhook(""), "red"), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			harness.Until(t, "red", func() bool { return w.GetDefault() == "red" })
			harness.Must(t, hooks.Delete(t.Context(), tagging.DefaultTagWebhook(""), metav1.DeleteOptions{}))
			harness.Until(t, "none", func() bool { return w.GetDefault() == "" })
		})
	}
}
