package coordinated

import (
	"fmt"
	"testing"

	"k8s.io/utils/ptr"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
)

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
// LeaseCandidates the election is not coordinated. Without the feature the coordinator uses annotations.
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
		again := next.candidates && !s.now.candidates
		s.now = next
		if led := s.processes[s.leader]; !led.leads.Load() {
			t.Errorf("the leader stopped after the restart:\n%s", led.log.String())
		}
		if again {
			s.replace()
		}
		s.changeDefaults()
	}
	for _, p := range s.processes {
		if n := p.log.Count("API server does not serve LeaseCandidates"); n > 1 {
			t.Errorf("logged %d times:\n%s", n, p.log.String())
		}
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
	s.processes[revision] = &process{s.candidate(pod, revision, func(c *leaderelection.Config) { c.DefaultWatcher = s.world.revision }), pod}
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

// replace replaces all processes. Running processes notice only after half a minute that LeaseCandidates are served again.
func (s *switched) replace() {
	s.t.Helper()
	s.start(s.follower())
	s.coordinate()
	s.processes[s.leader].stop()
	s.await("the new process leads", s.processes[s.follower()].leads.Load)
	former := s.leader
	s.leader = s.follower()
	s.start(former)
}

// changeDefaults changes the default revision twice: with the running processes, and with a new process and a new coordinator.
func (s *switched) changeDefaults() {
	s.t.Helper()
	for _, p := range s.processes {
		s.await("process detects whether LeaseCandidates are served", func() bool {
			return (p.election.Status().Uncoordinated == "") == s.now.candidates
		})
	}
	s.changeDefault()
	s.start(s.follower())
	s.coordinate()
	s.await("new process takes part", func() bool {
		p := s.processes[s.follower()]
		return s.now.candidates && s.leaseCandidate(p.pod) != nil || !s.now.candidates && p.election.Status().Uncoordinated != ""
	})
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
