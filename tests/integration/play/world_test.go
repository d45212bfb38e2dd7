package play

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/history"
	"incumbent.dev/incumbent/internal/testutil/play"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
	"incumbent.dev/incumbent/tests/cluster"
)

// The timing of the plays. A lease leaves a loaded machine some room between cover and lease.
const (
	lease = 4 * time.Second
	renew = 2400 * time.Millisecond
	retry = 600 * time.Millisecond
	drain = 500 * time.Millisecond // the longest that functions take to return
	// soon bounds every wait; what takes this long has failed.
	soon = 90 * time.Second
	// rounds is how many moves a play has.
	rounds = 8
)

const election = "play"

// world is one random run of an election's processes in a namespace.
type world struct {
	*play.Run

	t         testing.TB
	bug       bug
	ctx       context.Context
	cluster   *cluster.Cluster
	namespace string
	client    kube.Client // the admin's
	admin     kubernetes.Interface
	history   *recorder
	configs   map[string]*rest.Config // by process
	backups   []backup

	processes []*process
	all       []*process // guarded by Mu
}

func newWorld(t testing.TB, seed uint64, b bug) *world {
	t.Helper()
	c := cluster.Shared(t)
	client := c.Client(t)
	w := &world{
		Run: play.NewRun(seed), t: t, bug: b, cluster: c, namespace: c.Namespace(t),
		client: client, admin: client.Kube(), configs: map[string]*rest.Config{},
	}
	hook := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: w.tag(), Labels: map[string]string{"istio.io/rev": w.Default}}}
	hooks := w.admin.AdmissionregistrationV1().MutatingWebhookConfigurations()
	if _, err := hooks.Create(t.Context(), hook, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // no namespace takes it along
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), soon)
		defer cancel()
		if err := hooks.Delete(ctx, w.tag(), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return w
}

// tag is the webhook that says which revision is the default here.
func (w *world) tag() string { return revisions.DefaultTagWebhook(w.namespace) }

func (w *world) setDefault(revision string) {
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"istio.io/rev":%q}}}`, revision)
	_, err := w.admin.AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(w.ctx, w.tag(), types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		w.Violate("the default revision: %v", err)
	}
}

// within waits until f holds, and reports whether it came to that.
func (w *world) within(bound time.Duration, f func() bool) bool {
	deadline := time.After(bound)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-deadline:
			return false
		}
	}
	return true
}

// leaseName is the Lease of those of a revision: each has its own beside a predecessor.
func (w *world) leaseName(revision string) string {
	if w.Mix.HasPredecessor() {
		return election + "-" + revision
	}
	return election
}

// config is how a process of that make takes part.
func (w *world) config(name, revision string, m play.Make, watcher revisions.DefaultWatcher, log *slog.Logger) leaderelection.Config {
	cfg := leaderelection.Config{
		Namespace: w.namespace, ElectionID: election, Identity: name, Revision: revision,
		LeaseDuration: lease, RenewDeadline: renew, RetryPeriod: retry, DefaultWatcher: watcher, Logger: log,
	}
	switch m {
	case play.ConfigMapOnly:
		cfg.Lock = leaderelection.ConfigMapLock
	case play.BothLocks:
		cfg.Lock = leaderelection.MultiLock
	case play.LeaseOnly:
		cfg.Lock = leaderelection.LeaseLock
	case play.WithPredecessor:
		cfg.Lock, cfg.ElectionID = leaderelection.LeaseLock, w.leaseName(revision)
		cfg.Predecessor = &leaderelection.Predecessor{Name: election, Lock: leaderelection.ConfigMapLock}
	case play.IstiodPeer, play.ClientGoPeer:
	}
	return cfg
}

// object is one lock object, as the admin sees it.
func (w *world) configMap() *k8sresourcelock.ConfigMapLock {
	return &k8sresourcelock.ConfigMapLock{
		ConfigMapMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: election}, Client: w.admin.CoreV1(),
		LockConfig: k8sresourcelock.ResourceLockConfig{Identity: "admin"},
	}
}

func (w *world) lease(revision string) *k8sresourcelock.LeaseLock {
	return &k8sresourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: w.leaseName(revision)}, Client: w.admin.CoordinationV1(),
		LockConfig: k8sresourcelock.ResourceLockConfig{Identity: "admin"},
	}
}

// playElection plays one seed and returns what went wrong.
func playElection(t testing.TB, seed uint64, b bug) played {
	w := newWorld(t, seed, b)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	defer cancel()
	w.ctx = ctx
	w.history = w.record()
	for range 3 {
		w.start(w.NewName(), w.AnyRevision(), w.AnyMake())
	}
	// A play begins when somebody leads: who is there before has nothing to lose.
	w.within(soon, w.somebodyWorks)
	for range rounds {
		w.Wait(lease / 2)
		w.act()
	}
	w.endFaults()
	for len(w.processes) > 0 {
		w.quit(w.processes[0])
	}
	cancel()
	w.Orders.Wait()
	w.end()
	writes := w.history.stop()
	most := w.judge(writes)
	w.Mu.Lock()
	defer w.Mu.Unlock()
	return played{violations: w.Violations, writes: len(writes), orders: w.Ordered, most: most, runs: history.Runs(writes), log: w.Log()}
}

type played struct {
	violations   []string
	writes, runs int
	orders       int
	most         int // requests of one process about one object in ten RetryPeriods
	log          string
}
