package coordinated

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"incumbent.dev/incumbent/internal/members"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
)

// member publishes the member Lease of a candidate until it stops.
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
	end, withdraw := c.stop, w.background(func(ctx context.Context) { _ = publisher.Run(ctx) })
	c.stop = func() { end(); withdraw() }
	w.await(pod+" is a warm member", func() bool {
		l, err := w.admin.Kube().CoordinationV1().Leases(w.home).Get(w.t.Context(), "incumbent-member-"+pod, metav1.GetOptions{})
		return err == nil && strings.Contains(l.Annotations["incumbent.dev/member-state"], `"candidate":true,"warm":true,"fit":true,"strategy"`)
	})
}

// restart restarts the API server with other arguments.
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

// stage is a configuration of the API server.
type stage struct {
	args       []string
	candidates bool // it serves LeaseCandidates
	spec       bool // it stores strategy and preferredHolder
}

// TestFeatureSwitched disables and enables the feature while an election runs. The leader does not change. Without
// LeaseCandidates the coordinator chooses among members. Without the feature it uses annotations.
func TestFeatureSwitched(t *testing.T) {
	on := stage{feature, true, true}
	s := &switched{world: newWorld(t), now: on, leader: "stable", processes: map[string]*process{}}
	s.coordinate()
	s.start("stable")
	s.start("canary")
	s.await("default revision leads", s.processes["stable"].leads.Load)
	s.changeDefaults()
	defer func() {
		if t.Failed() {
			s.restart(feature...)
		}
	}()
	off, served := stage{}, stage{[]string{"--runtime-config=coordination.k8s.io/v1beta1=true"}, true, false}
	for _, next := range []stage{off, served, on} {
		s.restart(next.args...)
		s.now = next
		if led := s.processes[s.leader]; !led.leads.Load() {
			t.Errorf("the leader stopped after the restart:\n%s", led.log.String())
		}
		s.changeDefaults()
	}
}

// switched is an election on an API server that restarts.
type switched struct {
	*world
	now         stage
	coordinator *coordinator
	processes   map[string]*process // by revision
	leader      string              // revision of the leader
	n           int                 // number of Pods
}

type process struct {
	*candidate
	pod string
}

// start replaces the process of a revision.
func (s *switched) start(revision string) {
	s.t.Helper()
	if before := s.processes[revision]; before != nil {
		before.stop()
	}
	s.n++
	pod := fmt.Sprintf("%s-%d", revision, s.n)
	s.processes[revision] = &process{s.candidate(pod, revision), pod}
	s.member(pod, revision, s.processes[revision].candidate)
}

// coordinate replaces the coordinator.
func (s *switched) coordinate() {
	s.t.Helper()
	if s.coordinator != nil {
		s.coordinator.stop()
	}
	s.n++
	s.coordinator = s.coordinateAs(s.identity(fmt.Sprintf("coordinator-%d", s.n), s.chooser))
}

// changeDefaults changes the default revision immediately. If LeaseCandidates are served, it changes it again with a new process and
// a new coordinator, which do not wait for the publish period.
func (s *switched) changeDefaults() {
	s.t.Helper()
	s.changeDefault()
	if !s.now.candidates {
		return
	}
	s.start(s.follower())
	s.await("new process is published", func() bool { return s.leaseCandidate(s.processes[s.follower()].pod) != nil })
	s.coordinate()
	s.changeDefault()
	if strategy := string(ptr.Deref(s.lease().Spec.Strategy, "")); s.now.spec && strategy != coordination.DefaultRevision {
		s.t.Errorf("strategy in the spec: %q", strategy)
	}
}

func (s *switched) follower() string {
	return map[string]string{"stable": "canary", "canary": "stable"}[s.leader]
}

// changeDefault changes the default revision and expects a handover. A nominee has five seconds to acquire the lock, so on a slow
// machine the former leader may lead again in between.
func (s *switched) changeDefault() {
	s.t.Helper()
	before := ptr.Deref(s.lease().Spec.LeaseTransitions, 0)
	s.leader = s.follower()
	s.revision.Set(s.leader)
	to := s.processes[s.leader]
	s.await(fmt.Sprintf("%s leads in %+v", to.pod, s.now), to.leads.Load)
	after := s.lease()
	if who := *after.Spec.HolderIdentity; who != to.pod+".x" || *after.Spec.LeaseTransitions <= before {
		s.t.Errorf("in %+v, transitions %d before: %+v", s.now, before, after)
	}
}
