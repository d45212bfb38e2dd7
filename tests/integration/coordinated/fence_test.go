package coordinated

import (
	"strings"
	"testing"

	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/fence/install"
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
		Election: "x", Namespace: w.home, Lock: fence.Lease, Coordinated: true, ServiceAccounts: []string{w.home + "/pilot"},
		Guards: []fence.Guard{{Resources: []string{"configmaps"}, Names: []string{"guarded"}}},
	}
	if account != "pilot" {
		declared.Coordinators = []string{"system:serviceaccount:" + w.home + ":" + account}
	}
	set, err := fence.Render(w.home, declared)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := install.Apply(t.Context(), w.admin().Kube(), set); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.remove() })
	w.coordinate()
	stable, canary := w.candidate("stable-1", "stable"), w.candidate("canary-1", "canary")
	w.await("default revision leads", stable.leads.Load)
	admin := w.admin()
	write := func(client kube.Client) error {
		_, err := client.Kube().CoreV1().ConfigMaps(w.home).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "guarded"}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	w.await("leader can write", func() bool { return write(stable.client) == nil })
	w.await("follower cannot write", func() bool { return denied(write(canary.client)) })
	w.revision.Set("canary")
	w.await("new default leads", canary.leads.Load)
	w.await("new leader can write", func() bool { return write(canary.client) == nil })
	w.await("former leader cannot write", func() bool { return denied(write(stable.client)) })
	w.othersCandidates(stable.client)
	if err := w.name(stable.client, "stable-2.x"); denied(err) != (account != "pilot") {
		t.Errorf("candidate names another: %v", err)
	}
	canary.stop()
	w.await("other candidate is named after a release", stable.leads.Load)
	lease, err := admin.Kube().CoordinationV1().Leases(w.home).Get(t.Context(), "x", metav1.GetOptions{})
	if err != nil || *lease.Spec.HolderIdentity != "stable-1.x" {
		t.Errorf("lock %+v, %v", lease, err)
	}
}

// othersCandidates tests that a Pod can write its own LeaseCandidates and ping others, but cannot change others or the lock.
func (w *world) othersCandidates(mine kube.Client) {
	t, ctx := w.t, w.t.Context()
	t.Helper()
	candidates := mine.Kube().CoordinationV1beta1().LeaseCandidates(w.home)
	get := func(name string) *coordinationv1beta1.LeaseCandidate {
		c, err := w.admin().Kube().CoordinationV1beta1().LeaseCandidates(w.home).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	theirs := get("canary-1.x")
	forged := theirs.DeepCopy()
	forged.ObjectMeta = metav1.ObjectMeta{Name: "canary-1.y", Namespace: w.home}
	forged.Spec.LeaseName = "y"
	_, err := candidates.Create(ctx, forged, metav1.CreateOptions{})
	w.refused("create another's", err)
	changed := theirs.DeepCopy()
	metav1.SetMetaDataLabel(&changed.ObjectMeta, coordination.PriorityLabel, "9")
	_, err = candidates.Update(ctx, changed, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	w.refused("label another's", err)
	w.refused("delete another's", candidates.Delete(ctx, theirs.Name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}))
	asked := get("canary-1.x")
	asked.Spec.PingTime = new(metav1.NowMicro())
	if _, err := candidates.Update(ctx, asked, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil && !apierrors.IsConflict(err) {
		t.Errorf("ping another: %v", err)
	}
	own := get("stable-1.x")
	own.ObjectMeta = metav1.ObjectMeta{Name: "stable-1.y", Namespace: w.home}
	own.Spec.LeaseName = "y"
	if _, err := candidates.Create(ctx, own, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("create its own: %v", err)
	}
	own.ObjectMeta = metav1.ObjectMeta{Name: "stable-1.0.y", Namespace: w.home}
	_, err = candidates.Create(ctx, own, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	w.refused("create a LeaseCandidate of a Pod with the same prefix", err)
	lease, err := w.admin().Kube().CoordinationV1().Leases(w.home).Get(ctx, "x", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The transitions may increase by one only.
	lease.Spec.HolderIdentity, lease.Spec.LeaseTransitions = new("stable-1.x"), new(*lease.Spec.LeaseTransitions+2)
	_, err = mine.Kube().CoordinationV1().Leases(w.home).Update(ctx, lease, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	w.refused("increase transitions by two", err)
}

// name tries to write a holder.
func (w *world) name(by kube.Client, holder string) error {
	w.t.Helper()
	lease, err := w.admin().Kube().CoordinationV1().Leases(w.home).Get(w.t.Context(), "x", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	lease.Spec.HolderIdentity, lease.Spec.LeaseTransitions = &holder, new(*lease.Spec.LeaseTransitions+1)
	_, err = by.Kube().CoordinationV1().Leases(w.home).Update(w.t.Context(), lease, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	if apierrors.IsConflict(err) {
		return w.name(by, holder)
	}
	return err
}

func (w *world) refused(what string, err error) {
	w.t.Helper()
	if !denied(err) {
		w.t.Errorf("%s: %v", what, err)
	}
}

func denied(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy")
}

// remove removes the fence, so that the namespace can be deleted.
func (w *world) remove() {
	policies := w.admin().Kube().AdmissionregistrationV1()
	list := metav1.ListOptions{LabelSelector: "incumbent.dev/fence=" + w.home}
	ctx := w.t.Context()
	if ctx.Err() != nil {
		return
	}
	_ = policies.ValidatingAdmissionPolicyBindings().DeleteCollection(ctx, metav1.DeleteOptions{}, list)
	_ = policies.ValidatingAdmissionPolicies().DeleteCollection(ctx, metav1.DeleteOptions{}, list)
}
