package coordinated

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
	"incumbent.dev/incumbent/pilot/leaderelection/members"
)

// member has a candidate's process say what it could lead, as servers do, until the test's end.
func (w *world) member(pod, revision string, c *candidate) {
	w.t.Helper()
	publisher, err := members.New(members.Config{
		Client: c.client.Kube(), Namespace: w.home, Identity: pod, Logger: slog.New(slog.DiscardHandler),
		State: func() members.State {
			now := c.election.Status()
			return members.State{Revision: revision, Cluster: members.Local, Version: "1.0.0", Elections: []members.Election{
				{Name: now.Lock, Candidate: now.Running, Warm: now.Warm, Fit: !now.Unfit, Strategy: now.Strategy},
			}}
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { publisher.Run(ctx) })
	w.t.Cleanup(func() { cancel(); running.Wait() })
}

// restart has the API server come back with other arguments.
func (w *world) restart(args ...string) {
	w.t.Helper()
	server := w.c.APIServer()
	if err := server.Stop(); err != nil {
		w.t.Fatal(err)
	}
	server.SetArgs(args...)
	if err := server.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// The feature is switched off and on again while an election runs. The leader goes on, and the coordinator chooses by
// members while there are no LeaseCandidates.
func TestTheFeatureIsSwitchedOffAndOn(t *testing.T) {
	w := newWorld(t)
	w.patience *= 3 // a watch that an API server's restart has ended begins again after up to a minute
	defer func() {
		if t.Failed() {
			w.restart(feature...)
		}
	}()
	w.coordinate()
	stable, canary := w.candidate("stable-1", "stable"), w.candidate("canary-1", "canary")
	w.member("stable-1", "stable", stable)
	w.member("canary-1", "canary", canary)
	leases := w.admin().Kube().CoordinationV1().Leases(w.home)
	flip := func(to string, leads *candidate) {
		t.Helper()
		w.revision.Set(to)
		w.await(to+" leads", leads.leads.Load)
	}
	w.await("the default revision leads", stable.leads.Load)
	flip("canary", canary)
	before, err := leases.Get(t.Context(), "x", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if before.Spec.Strategy == nil || *before.Spec.Strategy != coordination.DefaultRevision {
		t.Errorf("with the feature it is %+v", before.Spec)
	}

	w.restart()
	if !canary.leads.Load() {
		t.Errorf("the leader does not work after the restart, and its lease is long:\n%s", canary.log.String())
	}
	flip("stable", stable)
	after, err := leases.Get(t.Context(), "x", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if *after.Spec.HolderIdentity != "stable-1.x" || *after.Spec.LeaseTransitions != *before.Spec.LeaseTransitions+1 {
		t.Errorf("without the feature it is %+v", after)
	}

	w.restart(feature...)
	flip("canary", canary)
	again, err := leases.Get(t.Context(), "x", metav1.GetOptions{})
	if err != nil || *again.Spec.LeaseTransitions != *before.Spec.LeaseTransitions+2 || again.Spec.Strategy == nil {
		t.Errorf("with the feature again it is %+v, %v", again, err)
	}
}
