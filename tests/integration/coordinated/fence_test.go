package coordinated

import (
	"testing"
	"time"

	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/fences"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
	"incumbent.dev/incumbent/pkg/kube"
)

// TestFence checks that the fence identifies the leader by its Pod, allows the coordinator to name candidates, and prevents
// Pods from changing other LeaseCandidates.
func TestFence(t *testing.T) {
	for _, account := range []string{"pilot", "coordinator"} {
		t.Run(account, func(t *testing.T) { fenced(t, account) })
	}
}

func fenced(t *testing.T, account string) {
	w := newWorld(t)
	w.chooser = account
	declared := fence.Declaration{
		Election: "x", Namespace: w.home, Lock: record.Lease, Coordinated: true, ServiceAccounts: []string{w.home + "/pilot"},
		Guards: []fence.Guard{{Resources: []string{"configmaps"}, Names: []string{"guarded"}}},
	}
	if account != "pilot" {
		declared.Coordinators = []string{"system:serviceaccount:" + w.home + ":" + account}
	}
	fences.Install(t, w.admin.Kube(), w.home, declared)
	w.coordinate()
	// Rare renewals, so that a slow write of the test on the lock is not always too late.
	rare := func(c *leaderelection.Config) { c.RetryPeriod = 10 * time.Second }
	stable, canary := w.candidate("stable-1", "stable", rare), w.candidate("canary-1", "canary", rare)
	w.await("default revision leads", stable.leads.Load)
	if strategy := w.lease().Spec.Strategy; strategy == nil || *strategy != coordination.DefaultRevision {
		t.Errorf("strategy in the spec: %v", strategy)
	}
	write := func(client kube.Client) error {
		_, err := client.Kube().CoreV1().ConfigMaps(w.home).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "guarded"}},
			metav1.CreateOptions{DryRun: dryRun})
		return err
	}
	w.await("leader can write", func() bool { return write(stable.client) == nil })
	w.await("follower cannot write", func() bool { return fence.IsRefusal(write(canary.client)) })
	w.revision.Set("canary")
	w.await("new default leads", canary.leads.Load)
	w.await("new leader can write", func() bool { return write(canary.client) == nil })
	w.await("former leader cannot write", func() bool { return fence.IsRefusal(write(stable.client)) })
	w.othersCandidates(stable.client)
	w.others(stable.client, account)
	canary.stop()
	w.await("other candidate is named after a release", stable.leads.Load)
	if lease := w.lease(); *lease.Spec.HolderIdentity != "stable-1.x" {
		t.Errorf("lock %+v", lease)
	}
}

var dryRun = []string{metav1.DryRunAll}

// othersCandidates tests that a Pod can write its own LeaseCandidates and ping others, but cannot change others.
func (w *world) othersCandidates(mine kube.Client) {
	w.t.Helper()
	ctx, candidates := w.t.Context(), mine.Kube().CoordinationV1beta1().LeaseCandidates(w.home)
	create := func(pod, name string) func() error {
		return func() error {
			c := &coordinationv1beta1.LeaseCandidate{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: w.leaseCandidate(pod).Spec}
			c.Spec.LeaseName = "y"
			_, err := candidates.Create(ctx, c, metav1.CreateOptions{DryRun: dryRun})
			return err
		}
	}
	update := func(change func(*coordinationv1beta1.LeaseCandidate)) func() error {
		return func() error {
			c := w.leaseCandidate("canary-1")
			change(c)
			_, err := candidates.Update(ctx, c, metav1.UpdateOptions{DryRun: dryRun})
			return err
		}
	}
	w.refused("create another's", create("canary-1", "canary-1.y"))
	w.refused("create a LeaseCandidate of a Pod with the same prefix", create("stable-1", "stable-1.0.y"))
	w.refused("label another's", update(func(c *coordinationv1beta1.LeaseCandidate) {
		metav1.SetMetaDataLabel(&c.ObjectMeta, coordination.PriorityLabel, "9")
	}))
	w.refused("delete another's", func() error { return candidates.Delete(ctx, "canary-1.x", metav1.DeleteOptions{DryRun: dryRun}) })
	w.allowed("create its own", create("stable-1", "stable-1.y"))
	w.allowed("ping another", update(func(c *coordinationv1beta1.LeaseCandidate) { c.Spec.PingTime = new(metav1.NowMicro()) }))
}

// others tests that a coordinator can name another holder, but a candidate cannot. The transitions may increase by one only.
func (w *world) others(mine kube.Client, coordinator string) {
	w.t.Helper()
	name := func(holder string, terms int32) func() error {
		return func() error {
			lease := w.lease()
			lease.Spec.HolderIdentity, lease.Spec.LeaseTransitions = &holder, new(*lease.Spec.LeaseTransitions+terms)
			_, err := mine.Kube().CoordinationV1().Leases(w.home).Update(w.t.Context(), lease, metav1.UpdateOptions{DryRun: dryRun})
			return err
		}
	}
	w.refused("increase transitions by two", name("stable-1.x", 2))
	if coordinator == "pilot" {
		w.allowed("name another", name("stable-2.x", 1))
	} else {
		w.refused("name another", name("stable-2.x", 1))
	}
}

// refused waits until a policy rejects a request, and allowed until it is accepted. A policy needs time to be in effect, and another
// client may change the object concurrently.
func (w *world) refused(what string, try func() error) {
	w.t.Helper()
	w.await(what+": rejected", func() bool { return fence.IsRefusal(try()) })
}

func (w *world) allowed(what string, try func() error) {
	w.t.Helper()
	w.await(what+": accepted", func() bool { return try() == nil })
}
