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

// With a fence the API server knows the leader of a coordinated election by its Pod, lets the coordinator choose, and keeps Pods from
// each other's LeaseCandidates.
func TestTheFenceOfACoordinatedElection(t *testing.T) {
	for _, account := range []string{"pilot", "coordinator"} {
		t.Run("the coordinator is a "+account, func(t *testing.T) { fenced(t, account) })
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
	w.await("the default revision leads, past the lock's guard", stable.leads.Load)
	admin := w.admin()
	write := func(client kube.Client) error {
		_, err := client.Kube().CoreV1().ConfigMaps(w.home).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "guarded"}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	w.await("the leader may write", func() bool { return write(stable.client) == nil })
	w.await("a follower may not", func() bool { return denied(write(canary.client)) })
	w.revision.Set("canary")
	w.await("the new default leads, by a handover that the guard admits", canary.leads.Load)
	w.await("it may write", func() bool { return write(canary.client) == nil })
	w.await("the former leader may not", func() bool { return denied(write(stable.client)) })
	w.strangers(stable.client)
	if err := w.name(stable.client, "stable-2.x"); denied(err) != (account != "pilot") {
		t.Errorf("a candidate names another: %v", err)
	}
	canary.stop()
	w.await("the other is named after a release", stable.leads.Load)
	lease, err := admin.Kube().CoordinationV1().Leases(w.home).Get(t.Context(), "x", metav1.GetOptions{})
	if err != nil || *lease.Spec.HolderIdentity != "stable-1.x" {
		t.Errorf("the holder is %+v, %v", lease, err)
	}
}

// strangers: a Pod writes its own candidates, asks others and collects the silent, and can neither publish nor change nor delete
// another's; and it does not take what it was not given.
func (w *world) strangers(mine kube.Client) {
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
	w.refused("to publish another's", err)
	changed := theirs.DeepCopy()
	metav1.SetMetaDataLabel(&changed.ObjectMeta, coordination.PriorityLabel, "9")
	_, err = candidates.Update(ctx, changed, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	w.refused("to label another's", err)
	w.refused("to delete another's", candidates.Delete(ctx, theirs.Name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}))
	asked := get("canary-1.x")
	asked.Spec.PingTime = new(metav1.NowMicro())
	if _, err := candidates.Update(ctx, asked, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil && !apierrors.IsConflict(err) {
		t.Errorf("to ask another: %v", err)
	}
	own := get("stable-1.x")
	own.ObjectMeta = metav1.ObjectMeta{Name: "stable-1.y", Namespace: w.home}
	own.Spec.LeaseName = "y"
	if _, err := candidates.Create(ctx, own, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("to publish its own: %v", err)
	}
	own.ObjectMeta = metav1.ObjectMeta{Name: "stable-1.0.y", Namespace: w.home}
	_, err = candidates.Create(ctx, own, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	w.refused("to publish that of a Pod whose name only begins alike", err)
	lease, err := w.admin().Kube().CoordinationV1().Leases(w.home).Get(ctx, "x", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The count has to go on by one, whoever writes.
	lease.Spec.HolderIdentity, lease.Spec.LeaseTransitions = new("stable-1.x"), new(*lease.Spec.LeaseTransitions+2)
	_, err = mine.Kube().CoordinationV1().Leases(w.home).Update(ctx, lease, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	w.refused("to count two terms", err)
}

// name tries to write somebody in as holder.
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

// remove takes the fence away, so that the namespace can go.
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
