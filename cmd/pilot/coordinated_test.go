package main

import (
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/bootstrap"
)

// defaultRevision is a strategy, as users write it.
const defaultRevision = "incumbent.dev/DefaultRevision"

// coordinates: a process that coordinates names itself, and is told of its strategy by a variable or by a flag; it publishes
// itself as a member that belongs to its Pod, unless it is told not to.
func coordinates(byFlag bool) func(t *testing.T, w *world) {
	return func(t *testing.T, w *world) {
		home := newNamespaces(t, "coordinated", 1)[0]
		identity := identityFor(t, bootstrap.Config{Coordinator: true, ElectionStrategy: defaultRevision, Lock: "lease"}, home, "a")
		pod, err := w.admin.CoreV1().Pods(home).Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		file, _ := bundle(t)
		env := []string{"ENABLE_COORDINATOR=true", "POD_NAME=a", "POD_NAMESPACE=" + home, "POD_UID=" + string(pod.UID), "PILOT_ENABLE_GATEWAY_API=false"}
		args := []string{"server", "--kubeconfig=" + kubeconfig(t, identity), "--address=127.0.0.1:0", "--debug-address=", "--ca-bundle=" + file, "--lock=lease"}
		if byFlag {
			args = append(args, "--election-strategy="+defaultRevision)
		} else {
			env = append(env, "ELECTION_STRATEGY="+defaultRevision)
		}
		launch(t, "coordinated", env, args...)
		await(t, "it is named by its own coordinator", func() bool {
			lease, err := w.admin.CoordinationV1().Leases(home).Get(t.Context(), namespaceElection(t), metav1.GetOptions{})
			return err == nil && lease.Annotations["incumbent.dev/strategy"] == defaultRevision && *lease.Spec.HolderIdentity == "a."+namespaceElection(t)
		})
		coordinator, err := w.admin.CoordinationV1().Leases(home).Get(t.Context(), "incumbent-coordinator", metav1.GetOptions{})
		if err != nil || *coordinator.Spec.HolderIdentity != "a" {
			t.Errorf("the coordinator is %+v, %v", coordinator, err)
		}
		member, err := w.admin.CoordinationV1().Leases(home).Get(t.Context(), "incumbent-member-a", metav1.GetOptions{})
		if err != nil || len(member.OwnerReferences) != 1 || member.OwnerReferences[0].UID != pod.UID {
			t.Errorf("the member is %+v, %v", member, err)
		}
	}
}

// coordinatesByVariables tries the three variables by one process: the first of the tests that ask for it does.
func coordinatesByVariables(t *testing.T, w *world) {
	byVariables.Do(func() { coordinates(false)(t, w) })
}

var byVariables sync.Once

// publishesNothing: told so, it has no member Lease once it leads.
func publishesNothing(t *testing.T, w *world) {
	home := newNamespaces(t, "no-member", 1)[0]
	file, _ := bundle(t)
	p := launch(t, "without a member", []string{"ENABLE_MEMBER_LEASE=false", "POD_NAME=a"}, "server", "--kubeconfig="+kubeconfig(t, identity(t, home, "a")),
		"--namespace="+home, "--address=127.0.0.1:0", "--debug-address=", "--ca-bundle="+file)
	p.leads(t)
	all, err := w.admin.CoordinationV1().Leases(home).List(t.Context(), metav1.ListOptions{LabelSelector: "incumbent.dev/member"})
	if err != nil || len(all.Items) > 0 {
		t.Errorf("it says %+v, %v", all, err)
	}
}
