package main

import (
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
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
			env = append(env, "ELECTION_STRATEGY="+defaultRevision, "ENABLE_OLDEST_EMULATION_VERSION=true", "EMULATION_VERSION=0.0.0-1")
			askForTheOldest(t, w, home)
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
		if byFlag {
			return
		}
		if state := member.Annotations["incumbent.dev/member-state"]; !strings.Contains(state, `"emulationVersion":"0.0.0-1"`) {
			t.Errorf("the member says %s", state)
		}
		await(t, "the older emulation version is named", func() bool {
			lease, err := w.admin.CoordinationV1().Leases(home).Get(t.Context(), "oldest", metav1.GetOptions{})
			return err == nil && *lease.Spec.HolderIdentity == "m-1.oldest"
		})
	}
}

// askForTheOldest publishes two members that ask for Kubernetes' strategy in an election of their own.
func askForTheOldest(t *testing.T, w *world, home string) {
	t.Helper()
	for name, emulated := range map[string]string{"m-1": "1.1.0", "m-2": "1.2.0"} {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Name: "incumbent-member-" + name, Labels: map[string]string{"incumbent.dev/member": "true"},
			Annotations: map[string]string{"incumbent.dev/member-state": `{"revision":"r","cluster":"local","version":"1.2.0","emulationVersion":"` + emulated +
				`","elections":[{"name":"oldest","candidate":true,"warm":true,"fit":true,"strategy":"OldestEmulationVersion"}]}`},
		}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: new(int32(90)), RenewTime: &metav1.MicroTime{Time: time.Now()}}}
		if _, err := w.admin.CoordinationV1().Leases(home).Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// coordinatesByVariables tries these variables by one process: the first of the tests that ask for it does.
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
