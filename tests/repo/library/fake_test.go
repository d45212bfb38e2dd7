package library

import (
	"context"
	"errors"
	"log/slog"
	"sync"
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

// double is a kube.Client of a unit test with a fake clientset. Because of its map it cannot be the key of a map.
type double struct {
	clientset kubernetes.Interface
	config    *rest.Config
	_         map[string]string
}

func (d double) Kube() kubernetes.Interface { return d.clientset }
func (d double) Dynamic() dynamic.Interface { return nil }
func (d double) RESTConfig() *rest.Config   { return d.config }

// clientset is one of the two fake clientsets of client-go.
type clientset interface {
	kubernetes.Interface
	Actions() []clienttesting.Action
}

func fakes() map[string]clientset {
	return map[string]clientset{
		"NewClientset":       fake.NewClientset(),
		"NewSimpleClientset": fake.NewSimpleClientset(), //nolint:staticcheck // people's tests use it
	}
}

// start runs an election. end stops it and waits for its end.
func start(t *testing.T, l *leaderelection.LeaderElection) (end func()) {
	t.Helper()
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		l.Run(stop)
	}()
	end = sync.OnceFunc(func() {
		close(stop)
		select {
		case <-ended:
		case <-time.After(patience):
			t.Error("Run does not return")
		}
	})
	t.Cleanup(end)
	return end
}

// writes returns the number of updates.
func writes(c clientset) (n int) {
	for _, a := range c.Actions() {
		if a.GetVerb() == "update" {
			n++
		}
	}
	return n
}

// With each fake clientset and constructor, a candidate leads and renews with a few requests per renewal. A second candidate follows,
// and leads after the first has stopped.
func TestFakeClientset_Election(t *testing.T) {
	names := istioStyle("a", double{clientset: fake.NewClientset()})
	for kind := range fakes() {
		for which := range names {
			t.Run(kind+"/"+which, func(t *testing.T) {
				t.Parallel()
				store := fakes()[kind]
				client := double{clientset: store, config: &rest.Config{}}
				a, b := istioStyle("a", client)[which], istioStyle("b", client)[which]
				endA := start(t, a.AddRunFunction(func(stop <-chan struct{}) { <-stop }))
				await(t, "a leads", a.IsLeader)
				start(t, b.AddRunFunction(func(stop <-chan struct{}) { <-stop }))
				await(t, "b follows", func() bool { holder, _ := b.Leader(); return holder == "a" })
				const renewals = 2
				from := writes(store)
				await(t, "a renews", func() bool { return writes(store) >= from+renewals })
				// A renewal is a read and an update. Other requests are reads and watches at the start, and polls while a watch is
				// silent.
				if got, updates := len(store.Actions()), writes(store); got > 4*updates+40 {
					t.Errorf("%d requests for %d updates", got, updates)
				}
				if b.IsLeader() {
					t.Error("b leads while a leads")
				}
				endA()
				await(t, "b leads", b.IsLeader)
			})
		}
	}
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
				a := elect(t, double{clientset: store}, "a", "stable", func(c *leaderelection.Config) {
					c.Clock, c.Lock, c.Logger = electiontest.Clock(), lock, slog.New(slog.NewTextHandler(&log, nil))
				})
				start(t, a)
				time.Sleep(time.Minute)
				if !a.IsLeader() || writes(store) < 50 {
					t.Errorf("a leads %v after %d renewals", a.IsLeader(), writes(store))
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
	for name, leave := range map[string]func(*fake.Clientset) error{
		"writes fail":  func(*fake.Clientset) error { return nil },
		"lock deleted": func(store *fake.Clientset) error { return store.Tracker().Delete(gvr, "istio-system", "an-election") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := fake.NewClientset()
				var failing atomic.Bool
				store.PrependReactor("*", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
					w, ok := action.(clienttesting.CreateAction) // an UpdateAction too
					return ok && failing.Load() && *w.GetObject().(*coordinationv1.Lease).Spec.HolderIdentity == "a", nil, errors.New("cut off")
				})
				replica := func(identity string) *leaderelection.LeaderElection {
					l := elect(t, double{clientset: store}, identity, "stable", func(c *leaderelection.Config) {
						c.Clock, c.Logger = electiontest.Clock(), slog.New(slog.DiscardHandler)
						c.LeaseDuration, c.RenewDeadline = lease, 2*time.Second
					})
					start(t, l)
					synctest.Wait()
					return l
				}
				a, b := replica("a"), replica("b")
				time.Sleep(time.Minute)
				if !a.IsLeader() || b.IsLeader() {
					t.Fatal("a does not lead")
				}
				failing.Store(true)
				harness.Must(t, leave(store))
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
			w := revisions.NewDefaultWatcher(double{clientset: store}, "red", "")
			harness.Background(t, func(ctx context.Context) error { w.Run(ctx.Done()); return nil })
			await(t, "synced", w.HasSynced)
			if got := w.GetDefault(); got != "" {
				t.Errorf("another webhook's revision counts: %q", got)
			}
			hooks := store.AdmissionregistrationV1().MutatingWebhookConfigurations()
			if _, err := hooks.Create(t.Context(), hook(tagging.DefaultTagWebhook(""), "red"), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			await(t, "red", func() bool { return w.GetDefault() == "red" })
			harness.Must(t, hooks.Delete(t.Context(), tagging.DefaultTagWebhook(""), metav1.DeleteOptions{}))
			await(t, "none", func() bool { return w.GetDefault() == "" })
		})
	}
}

// istioStyle returns an election of each constructor with istiod's signature.
func istioStyle(name string, client kube.Client) map[string]*leaderelection.LeaderElection {
	const namespace, id, revision = "istio-system", "an-election", "stable"
	return map[string]*leaderelection.LeaderElection{
		"ConfigMap":    leaderelection.NewLeaderElection(namespace, name, id, revision, client),
		"Lease":        leaderelection.NewLeaseLeaderElection(namespace, name, id, revision, client),
		"per revision": leaderelection.NewPerRevisionLeaderElection(namespace, name, id, revision, client),
		"multicluster": leaderelection.NewLeaderElectionMulticluster(namespace, name, id, revision, false, client),
	}
}
