package coordinated

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1beta1client "k8s.io/client-go/kubernetes/typed/coordination/v1beta1"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/fences"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
	"incumbent.dev/incumbent/pkg/kube"
)

// TestFence checks that the fence identifies the leader by its Pod and allows the coordinator to name candidates.
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
	w.others(stable.client, account)
	canary.stop()
	w.await("other candidate is named after a release", stable.leads.Load)
	if lease := w.lease(); *lease.Spec.HolderIdentity != "stable-1.x" {
		t.Errorf("lock %+v", lease)
	}
}

var dryRun = []string{metav1.DryRunAll}

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

// TestFence_LeaseCandidates checks which LeaseCandidates a Pod can write: its own. For other LeaseCandidates it can only write the time of
// a ping, and delete a LeaseCandidate that did not respond. No coordinator runs, so only the test changes the objects.
func TestFence_LeaseCandidates(t *testing.T) {
	w := newWorld(t)
	all := w.admin.Kube().CoordinationV1beta1().LeaseCandidates(w.home)
	pod := func(name, account string) coordinationv1beta1client.LeaseCandidateInterface {
		return w.connect(w.identity(name, account)).Kube().CoordinationV1beta1().LeaseCandidates(w.home)
	}
	mine, unlimited := pod("stable-1", "pilot"), pod("coordinator", "coordinator")
	fences.Install(t, w.admin.Kube(), w.home, fence.Declaration{
		Election: "x", Namespace: w.home, Lock: record.Lease, Coordinated: true, ServiceAccounts: []string{w.home + "/pilot"},
	})
	pinged := metav1.NewMicroTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	at := func(after time.Duration) *metav1.MicroTime { return new(metav1.NewMicroTime(pinged.Add(after))) }
	stored := func(name string, ping, renew *metav1.MicroTime) *coordinationv1beta1.LeaseCandidate {
		return &coordinationv1beta1.LeaseCandidate{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"a": "b"}},
			Spec: coordinationv1beta1.LeaseCandidateSpec{
				LeaseName: name[strings.LastIndex(name, ".")+1:], BinaryVersion: "1.0.0", EmulationVersion: "1.0.0", Strategy: coordination.DefaultRevision, PingTime: ping, RenewTime: renew,
			},
		}
	}
	for _, c := range []*coordinationv1beta1.LeaseCandidate{
		stored("stable-1.x", nil, at(0)), stored("silent.x", &pinged, at(-time.Microsecond)), stored("new.x", &pinged, nil),
		stored("answered.x", &pinged, at(time.Second)), stored("exact.x", &pinged, at(0)), stored("other.x", nil, at(0)),
	} {
		if _, err := all.Create(t.Context(), c, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create := func(name string) error {
		_, err := mine.Create(t.Context(), stored(name, nil, at(0)), metav1.CreateOptions{DryRun: dryRun})
		return err
	}
	update := func(name string, change func(*coordinationv1beta1.LeaseCandidate)) error {
		c, err := all.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		change(c)
		_, err = mine.Update(t.Context(), c, metav1.UpdateOptions{DryRun: dryRun})
		return err
	}
	remove := func(as coordinationv1beta1client.LeaseCandidateInterface, name string) error {
		return as.Delete(t.Context(), name, metav1.DeleteOptions{DryRun: dryRun})
	}
	ping := func(c *coordinationv1beta1.LeaseCandidate) { c.Spec.PingTime = at(time.Hour) }
	// change pings and makes one more change.
	change := func(more func(*coordinationv1beta1.LeaseCandidate)) error {
		return update("other.x", func(c *coordinationv1beta1.LeaseCandidate) {
			ping(c)
			more(c)
		})
	}
	type candidate = coordinationv1beta1.LeaseCandidate
	w.refused("create a LeaseCandidate before the policy is in effect", func() error { return create("other.y") })
	for what, err := range map[string]error{
		"create a LeaseCandidate of another Pod":                create("other.y"),
		"create a LeaseCandidate of a Pod with the same prefix": create("stable-1.0.y"),
		"delete a LeaseCandidate without a ping":                remove(mine, "other.x"),
		"delete a LeaseCandidate that responded":                remove(mine, "answered.x"),
		"delete a LeaseCandidate that responded at that time":   remove(mine, "exact.x"),
		"renew another":                         update("other.x", func(c *candidate) { c.Spec.RenewTime = at(time.Hour) }),
		"remove the ping of another":            update("answered.x", func(c *candidate) { c.Spec.PingTime = nil }),
		"ping and renew another":                change(func(c *candidate) { c.Spec.RenewTime = at(time.Hour) }),
		"ping and remove the time of a renewal": change(func(c *candidate) { c.Spec.RenewTime = nil }),
		"ping and change the binary version":    change(func(c *candidate) { c.Spec.BinaryVersion = "2.0.0" }),
		"ping and change the emulation version": change(func(c *candidate) { c.Spec.EmulationVersion = "0.9.0" }),
		"ping and change the strategy":          change(func(c *candidate) { c.Spec.Strategy = coordinationv1.OldestEmulationVersion }),
		"ping and add a label":                  change(func(c *candidate) { metav1.SetMetaDataLabel(&c.ObjectMeta, coordination.PriorityLabel, "9") }),
		"ping and change an annotation":         change(func(c *candidate) { c.Annotations["a"] = "c" }),
		"ping and add a finalizer":              change(func(c *candidate) { c.Finalizers = []string{"example.com/x"} }),
		"ping and add an owner": change(func(c *candidate) {
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u"}}
		}),
	} {
		if !fence.IsRefusal(err) {
			t.Errorf("%s: not rejected: %v", what, err)
		}
	}
	for what, err := range map[string]error{
		"create its own": create("stable-1.y"),
		"create its own with the name of the Pod": create("stable-1"),
		"renew its own":  update("stable-1.x", func(c *candidate) { c.Spec.RenewTime = at(time.Hour) }),
		"delete its own": remove(mine, "stable-1.x"),
		"ping another":   update("other.x", ping),
		"ping again":     update("answered.x", ping),
		"delete a LeaseCandidate that did not respond":  remove(mine, "silent.x"),
		"delete a LeaseCandidate without a renewal":     remove(mine, "new.x"),
		"delete any by an account that is no candidate": remove(unlimited, "other.x"),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
