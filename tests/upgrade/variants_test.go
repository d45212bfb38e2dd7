package upgrade

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/tests/upgrade/rollout"
)

// whole skips a test that runs only in make upgrade-test.
func whole(t *testing.T) {
	t.Helper()
	if os.Getenv("UPGRADE") != "whole" {
		t.Skip("runs only in make upgrade-test")
	}
}

var canary = rollout.Release{Revision: "canary", Replicas: 2}

// Several failures, one after the other under the same load.
func TestUpgradeThroughTrouble(t *testing.T) {
	whole(t)
	w := start(t, rollout.Options{Lease: 6 * time.Second, Renew: 4 * time.Second, Retry: time.Second, Images: map[string]string{"crashing": "/bin/false"}})
	w.begin()
	w.canaryCrashes()
	w.canaryWithoutRights()
	w.flipTwice()
	w.rollbackDuringHandover()
	w.restartAll()
	w.crashAPIServer()
	w.finish()
}

// flip changes the label, and waits until the revision leads and every object is in its desired state.
func (w *world) flip(revision string) {
	w.t.Helper()
	harness.Must(w.t, w.FlipLabel(w.t.Context(), revision))
	harness.Must(w.t, w.AwaitLeads(w.t.Context(), revision))
	w.awaitWanted()
}

// canaryCrashes: stable keeps all elections and writes. After a repair canary leads.
func (w *world) canaryCrashes() {
	w.t.Helper()
	ctx := w.t.Context()
	w.Step("canary crashes repeatedly")
	broken := canary
	broken.Image = "crashing"
	harness.Must(w.t, w.Apply(ctx, broken))
	harness.Until(w.t, "canary crashes", func() bool {
		for _, p := range w.Node.Pods() {
			if p.Restarts >= 2 && strings.HasPrefix(p.Name, "pilot-canary") {
				return true
			}
		}
		return false
	})
	harness.Must(w.t, w.AwaitLeads(ctx, "stable"))
	// No candidate has created the lock of canary's fence. The fence must not reject stable's writes.
	_, err := w.Kube.CoordinationV1().Leases(rollout.Namespace).Get(ctx, "istio-gateway-deployment-canary", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		w.t.Errorf("the lock of canary, which crashes: %v", err)
	}
	harness.Must(w.t, w.Serve(ctx, "while-canary-crashes"))
	harness.Must(w.t, w.Install(ctx, canary))
	w.flip("canary")
	w.flip("stable")
}

// canaryWithoutRights: the default revision has no rights, so stable keeps the shared elections until canary has them.
func (w *world) canaryWithoutRights() {
	w.t.Helper()
	ctx := w.t.Context()
	harness.Must(w.t, w.Uninstall(ctx, "canary"))
	w.Step("canary has no rights")
	powerless := canary
	powerless.WithoutRights = true
	harness.Must(w.t, w.Apply(ctx, powerless))
	harness.Until(w.t, "the Pods of canary run", func() bool {
		pods, err := w.Pods(ctx, "canary")
		return err == nil && len(pods) == 2 && pods[0].Status.PodIP != "" && pods[1].Status.PodIP != ""
	})
	harness.Must(w.t, w.FlipLabel(ctx, "canary"))
	spoilt := metav1.ObjectMeta{Name: "while-powerless"}
	_, err := w.Kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: spoilt}, metav1.CreateOptions{})
	harness.Must(w.t, err)
	harness.Until(w.t, "stable still distributes the bundle", func() bool {
		_, err := w.Kube.CoreV1().ConfigMaps(spoilt.Name).Get(ctx, "istio-ca-root-cert", metav1.GetOptions{})
		return err == nil
	})
	harness.Must(w.t, w.AwaitLeads(ctx, "stable"))
	harness.Must(w.t, w.Install(ctx, canary))
	harness.Must(w.t, w.AwaitLeads(ctx, "canary"))
	w.awaitWanted()
	w.flip("stable")
}

// flipTwice flips back before the first flip has finished.
func (w *world) flipTwice() {
	w.t.Helper()
	harness.Must(w.t, w.FlipLabel(w.t.Context(), "canary"))
	w.flip("stable")
}

// rollbackDuringHandover flips back as soon as the lock contains a handover request.
func (w *world) rollbackDuringHandover() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), endLimit)
	defer cancel()
	const lock = "istio-namespace-controller-election"
	configMaps := w.Kube.CoreV1().ConfigMaps(rollout.Namespace)
	before, err := configMaps.Get(ctx, lock, metav1.GetOptions{})
	harness.Must(w.t, err)
	// It continues after a connection has ended.
	versions, err := watchtools.NewRetryWatcherWithContext(ctx, before.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = "metadata.name=" + lock
			return configMaps.Watch(ctx, options)
		},
	})
	harness.Must(w.t, err)
	harness.Must(w.t, w.FlipLabel(ctx, "canary"))
	_, err = watchtools.UntilWithoutRetry(ctx, versions, func(event watch.Event) (bool, error) {
		c, ok := event.Object.(*corev1.ConfigMap)
		return ok && c.Annotations[record.HandoverRequestAnnotation] != "", nil
	})
	if err != nil {
		w.t.Fatalf("no candidate requested a handover: %v", err)
	}
	w.flip("stable")
}

// replicas returns the names of the control plane's Pods.
func (w *world) replicas() sets.Set[string] {
	names := sets.New[string]()
	for _, pod := range w.Node.Pods() {
		if pod.Namespace == rollout.Namespace {
			names.Insert(pod.Name)
		}
	}
	return names
}

// restartAll deletes every Pod of both revisions.
func (w *world) restartAll() {
	w.t.Helper()
	ctx := w.t.Context()
	w.Step("restart all Pods")
	before := w.replicas()
	harness.Must(w.t, w.Kube.CoreV1().Pods(rollout.Namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app=pilot"}))
	harness.Until(w.t, "all Pods are new", func() bool { return w.replicas().Intersection(before).Len() == 0 })
	harness.Must(w.t, w.AwaitReady(ctx, "stable", 3))
	harness.Must(w.t, w.AwaitReady(ctx, "canary", 2))
	harness.Must(w.t, w.AwaitLeads(ctx, "stable"))
	w.awaitWanted()
}

// crashAPIServer crashes the API server right after a flip.
func (w *world) crashAPIServer() {
	w.t.Helper()
	ctx := w.t.Context()
	harness.Must(w.t, w.FlipLabel(ctx, "canary"))
	harness.Must(w.t, w.CrashAPIServer(ctx))
	harness.Must(w.t, w.AwaitLeads(ctx, "canary"))
	w.awaitWanted()
}

// TestFlips measures 50 flips. Each flip waits for the rollout of the Gateways: a Deployment that is
// rolled back every half second can lose all of its available Pods (docs/upgrade.md).
func TestFlips(t *testing.T) {
	whole(t)
	const n = 50
	w := start(t, rollout.Options{})
	w.begin()
	harness.Must(w.t, w.Install(t.Context(), canary))
	for i := range n {
		revision := []string{"canary", "stable"}[i%2]
		w.flip(revision)
	}
	if v := w.finish(); len(v.Flips) != n {
		t.Errorf("%d flips finished, want %d", len(v.Flips), n)
	}
}
