package coordination_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// One that answers and does not lead is passed over, and named no more often than its back-off allows: a Publisher without an elector.
func TestOneThatAnswersAndDoesNotLead(t *testing.T) {
	n := inNamespace(t)
	began := time.Now()
	seen := n.watch("x", "ghost.x", "a.x")
	n.coordinate()
	publisher, err := coordination.NewPublisher(coordination.PublisherConfig{
		Client: n.client, Namespace: n.namespace, Lease: "x", Pod: "ghost", BinaryVersion: "1.2.3", Strategy: coordination.DefaultRevision,
		Labels: map[string]string{coordination.RevisionLabel: "stable", coordination.PriorityLabel: "9"}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var runs sync.WaitGroup
	runs.Go(func() { _ = publisher.Run(ctx) })
	defer runs.Wait()
	defer cancel()
	n.awaits("the ghost is named", "x", func() bool { return seen.named("ghost.x") == 1 })
	a := n.replica("x", "a", "stable", func(e *k8sleaderelection.LeaderElectionConfig, _ *coordination.PublisherConfig) {
		e.LeaseDuration, e.RenewDeadline, e.RetryPeriod = 3*time.Second, 2*time.Second, 300*time.Millisecond
	})
	n.awaits("a leads", "x", a.leads.Load)
	n.awaits("a's term goes on", "x", func() bool { return seen.writes("a.x") >= 8 })
	named := seen.named("ghost.x")
	if allowed := nominations(time.Since(began)); named > allowed {
		t.Errorf("the ghost was named %d times, and %d are allowed", named, allowed)
	}
}

// nominations is how often one that never comes may be named in d: each time for an election duration, and then left alone for
// two of them, for four, and so on.
func nominations(d time.Duration) (n int) {
	backOff := 2 * coordination.ElectionDuration
	for n = 1; d >= coordination.ElectionDuration+backOff; n++ {
		d -= coordination.ElectionDuration + backOff
		backOff *= 2
	}
	return n
}

// sightings count, of each version of a Lease, who holds it or is preferred to its holder.
type sightings struct {
	mu          sync.Mutex
	last        map[string]bool
	times, held map[string]int
}

// watch begins before the Lease is there.
func (n *coordinated) watch(lease string, who ...string) *sightings {
	n.t.Helper()
	w, err := n.client.CoordinationV1().Leases(n.namespace).Watch(n.t.Context(), metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", lease).String(),
	})
	if err != nil {
		n.t.Fatal(err)
	}
	s := &sightings{last: map[string]bool{}, times: map[string]int{}, held: map[string]int{}}
	var watching sync.WaitGroup
	watching.Go(func() {
		for event := range w.ResultChan() {
			if l, ok := event.Object.(*coordinationv1.Lease); ok {
				s.see(l, who)
			}
		}
	})
	n.t.Cleanup(func() { w.Stop(); watching.Wait() })
	return s
}

func (s *sightings) see(l *coordinationv1.Lease, who []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range who {
		holds := l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity == one
		is := holds || l.Spec.PreferredHolder != nil && *l.Spec.PreferredHolder == one
		if is && !s.last[one] {
			s.times[one]++
		}
		if s.held[one]++; !holds {
			s.held[one] = 0
		}
		s.last[one] = is
	}
}

// named is how often somebody was written in as holder or preferred to one, each time once.
func (s *sightings) named(who string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.times[who]
}

// writes are the latest versions of the Lease, as long as it is one that holds it.
func (s *sightings) writes(who string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[who]
}
