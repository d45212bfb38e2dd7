package bootstrap

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/members"
	"incumbent.dev/incumbent/pilot/bootstrap/manifests"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
	locks "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/tests/cluster"
)

// coordinatedConfig is that of a server which takes part in the coordinator's election and whose own election is coordinated.
func (e *environment) coordinatedConfig(t *testing.T, pod string) Config {
	t.Helper()
	c := Config{
		Namespace: e.home, Identity: pod, Revision: "stable", Address: "127.0.0.1:0", CABundle: "/no/such/file",
		LeaseDuration: 60 * time.Second, RenewDeadline: 40 * time.Second, RetryPeriod: time.Second,
		Lock: "lease", Coordinator: true, ElectionStrategy: coordination.DefaultRevision,
	}
	all := Rights(c)
	all.Add(rights(electionID))
	c.RESTConfig = e.cluster.Identity(t, cluster.IdentityOptions{
		Namespace: e.home, PodName: pod, ServiceAccount: "pilot", Rules: manifests.NamespaceRules(all), ClusterRules: manifests.ClusterRules(all),
	})
	return c
}

// coordinatedRows are the tests' own election and the coordinator's.
func coordinatedRows() (*controller, []election) {
	c := newController()
	i := slices.IndexFunc(table, func(row election) bool { return row.id == leaderelection.Coordinator })
	return c, append(c.rows(), table[i])
}

func (e *environment) lease(t *testing.T, name string) *coordinationv1.Lease {
	t.Helper()
	l, err := e.admin.Kube().CoordinationV1().Leases(e.home).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return l
}

// coordinatorHasItsEffect: this API server serves no LeaseCandidates, so that members are the candidates. The coordinator makes the lock and
// names its holder; when its process ends, the next coordinator names the next.
func coordinatorHasItsEffect(t *testing.T, e *environment) {
	_, rowsOfA := coordinatedRows()
	_, rowsOfB := coordinatedRows()
	a := start(t, e.coordinatedConfig(t, "a"), rowsOfA)
	holds := func(lock, holder string) func() bool {
		return func() bool {
			l := e.lease(t, lock)
			return l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity == holder && l.Annotations[locks.MarkerAnnotation] != ""
		}
	}
	await(t, "a leads the coordinator's election", holds(leaderelection.Coordinator, "a"))
	await(t, "a leads by a's own word", holds(electionID, "a."+electionID))
	if l := e.lease(t, electionID); l.Annotations[locks.StrategyAnnotation] != coordination.DefaultRevision {
		t.Errorf("nobody coordinates %+v", l)
	}
	b := start(t, e.coordinatedConfig(t, "b"), rowsOfB)
	await(t, "b is a candidate", func() bool {
		l := e.lease(t, "incumbent-member-b")
		return strings.Contains(l.Annotations["incumbent.dev/member-state"], `"warm":true,"fit":true,"strategy"`)
	})
	began := time.Now()
	if err := a.end(); err != nil {
		t.Error(err)
	}
	await(t, "b coordinates", holds(leaderelection.Coordinator, "b"))
	await(t, "b leads", holds(electionID, "b."+electionID))
	t.Logf("b leads %v after a was told to end", time.Since(began))
	if strings.Contains(b.lines.String(), "settling") {
		t.Error("b has settled although a has ended well")
	}

	config := e.coordinatedConfig(t, "c")
	config.Lock = "configmap"
	if err := config.Validate(); err == nil || !strings.Contains(err.Error(), "--lock=lease") {
		t.Errorf("a coordinated ConfigMap: %v", err)
	}
	config.Lock, config.ElectionStrategy = "lease", "Zone"
	if _, err := newServer(config, newController().rows()); err == nil || !strings.Contains(err.Error(), "give "+coordination.DefaultRevision) {
		t.Errorf("a strategy that the API server would refuse: %v", err)
	}
	if err := b.end(); err != nil {
		t.Error(err)
	}
	with, without := Rights(Config{Coordinator: true}), Rights(Config{})
	if len(with.Home) != len(without.Home)+2 || len(with.Leases) != len(without.Leases)+1 {
		t.Errorf("one that coordinates has the rights %+v, one that does not %+v", with, without)
	}
}

// emulationHasItsEffect: a server that is told so chooses by the oldest emulation version, too, and says what it emulates itself.
func emulationHasItsEffect(t *testing.T, e *environment) {
	for name, emulated := range map[string]string{"m-1": "1.1.0", "m-2": "1.2.0"} {
		state := members.State{Revision: "r", Cluster: members.Local, Version: "1.2.0", EmulationVersion: emulated, Elections: []members.Election{
			{Name: "oldest", Candidate: true, Warm: true, Fit: true, Strategy: coordination.OldestEmulationVersion},
		}}
		member, err := members.New(members.Config{
			Client: e.admin.Kube(), Namespace: e.home, Identity: name, State: func() members.State { return state }, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { _ = member.Run(ctx) })
		t.Cleanup(func() { cancel(); running.Wait() })
	}
	config := e.coordinatedConfig(t, "d")
	config.OldestEmulation, config.EmulationVersion = true, "0.0.0-1"
	_, rows := coordinatedRows()
	s := start(t, config, rows)
	await(t, "the older emulation version is named", func() bool {
		l := e.lease(t, "oldest")
		return l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity == "m-1.oldest" && l.Annotations[locks.StrategyAnnotation] == coordination.OldestEmulationVersion
	})
	await(t, "it says what it emulates", func() bool {
		return strings.Contains(e.lease(t, "incumbent-member-d").Annotations["incumbent.dev/member-state"], `"emulationVersion":"0.0.0-1"`)
	})
	if err := s.end(); err != nil {
		t.Error(err)
	}
	config.EmulationVersion = "9.0.0"
	if _, err := newServer(config, newController().rows()); err == nil || !strings.Contains(err.Error(), "above the binary version") {
		t.Errorf("more than its own version: %v", err)
	}
}
