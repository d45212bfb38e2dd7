package coordinated

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/members"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
)

// member has a candidate's process say what it could lead, as servers do, until it is stopped.
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
	end := c.stop
	c.stop = sync.OnceFunc(func() { end(); cancel(); running.Wait() })
	w.t.Cleanup(c.stop)
	w.await(pod+" is known as a member that is ready to lead", func() bool {
		l, err := w.admin().Kube().CoordinationV1().Leases(w.home).Get(w.t.Context(), "incumbent-member-"+pod, metav1.GetOptions{})
		return err == nil && strings.Contains(l.Annotations["incumbent.dev/member-state"], `"candidate":true,"warm":true,"fit":true,"strategy"`)
	})
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

// stage is what an API server serves from one start to the next.
type stage struct {
	args       []string
	candidates bool // it serves LeaseCandidates
	spec       bool // it keeps the coordinator's words in a Lease's spec
}

var (
	on  = stage{feature, true, true}
	off = stage{nil, false, false}
)

// The feature is switched off and on again while an election runs. The leader goes on, and the coordinator chooses by
// members while there are no LeaseCandidates.
func TestTheFeatureIsSwitchedOffAndOn(t *testing.T) {
	newSwitched(t, on, true).through(off, on)
}

// switched is an election of an API server that is started anew.
type switched struct {
	*world
	now         stage
	members     bool
	coordinator *coordinator
	processes   map[string]*process // by revision
	leader      string              // its revision
	n           int                 // Pods there have been
}

type process struct {
	*candidate
	pod string
}

// newSwitched begins with what the API server serves first; with members the processes publish themselves in that way as well, as servers do.
func newSwitched(t *testing.T, first stage, withMembers bool) *switched {
	w := newWorld(t)
	w.patience *= 3 // a watch that an API server's restart has ended begins again after up to a minute
	s := &switched{world: w, now: first, members: withMembers, leader: "stable", processes: map[string]*process{}}
	if !first.spec {
		w.restart(first.args...)
	}
	s.coordinate()
	s.start("stable")
	s.start("canary")
	return s
}

// start has a process of a revision in the place of the one before.
func (s *switched) start(revision string) {
	s.t.Helper()
	if before := s.processes[revision]; before != nil {
		before.stop()
	}
	s.n++
	pod := fmt.Sprintf("%s-%d", revision, s.n)
	s.processes[revision] = &process{s.candidate(pod, revision), pod}
	if s.members {
		s.member(pod, revision, s.processes[revision].candidate)
	}
}

// coordinate has another coordinator in the place of the one before, which knows nothing but the objects.
func (s *switched) coordinate() {
	s.t.Helper()
	if s.coordinator != nil {
		s.coordinator.stop()
	}
	s.n++
	s.coordinator = s.coordinateAs(s.identity(fmt.Sprintf("coordinator-%d", s.n), s.chooser))
}

// through has each stage follow on the one before. In each of them the default revision changes at once, and where LeaseCandidates are served
// once more, to a process that has just begun, by a coordinator that has just begun: neither waits for what was not served before.
func (s *switched) through(stages ...stage) {
	s.t.Helper()
	defer func() {
		if !s.now.spec || s.t.Failed() {
			s.restart(feature...)
		}
	}()
	s.await("the default revision leads", s.processes["stable"].leads.Load)
	s.flips()
	for _, next := range stages {
		s.restart(next.args...)
		s.now = next
		if led := s.processes[s.leader]; !led.leads.Load() {
			s.t.Errorf("the leader does not work after the restart, and its lease is long:\n%s", led.log.String())
		}
		s.flips()
	}
}

func (s *switched) flips() {
	s.t.Helper()
	s.flip()
	if !s.now.candidates {
		return
	}
	s.start(s.follower())
	s.await("it is published", func() bool { return s.leaseCandidate(s.processes[s.follower()].pod) != nil })
	s.coordinate()
	s.flip()
	if strategy := string(value(s.lease().Spec.Strategy)); s.now.spec && strategy != coordination.DefaultRevision {
		s.t.Errorf("with the feature the strategy in the spec is %q", strategy)
	}
}

func (s *switched) follower() string {
	return map[string]string{"stable": "canary", "canary": "stable"}[s.leader]
}

// flip changes the default revision, which takes one handover.
func (s *switched) flip() {
	s.t.Helper()
	before := value(s.lease().Spec.LeaseTransitions)
	s.leader = s.follower()
	s.revision.Set(s.leader)
	to := s.processes[s.leader]
	s.await(fmt.Sprintf("%s leads in %+v", to.pod, s.now), to.leads.Load)
	after := s.lease()
	if who := *after.Spec.HolderIdentity; who != to.pod+".x" || *after.Spec.LeaseTransitions != before+1 {
		s.t.Errorf("in %+v, after %d transitions, it is %+v", s.now, before, after)
	}
}
