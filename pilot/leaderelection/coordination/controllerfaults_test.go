package coordination_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// Two coordinators at once write what one would, as each write is guarded; and the clock by which their candidates are
// stamped is of no account.
func TestTwoCoordinatorsAtOnce(t *testing.T) {
	n := inNamespace(t)
	first := n.coordinate()
	n.coordinate()
	a, b := n.replica("x", "a", "stable"), n.replica("x", "b", "canary")
	n.awaits("a leads", "x", a.leads.Load)
	for _, to := range []*replica{b, a, b} {
		n.flip(map[*replica]string{a: "stable", b: "canary"}[to])
		n.awaits(to.pod+" leads", "x", to.leads.Load)
	}
	first()
	n.flip("stable")
	n.awaits("a leads, one coordinator has ended", "x", a.leads.Load)
}

// A coordinator that begins knows nothing but the objects.
func TestTheNextCoordinator(t *testing.T) {
	n := inNamespace(t)
	end := n.coordinate()
	a, b := n.replica("x", "a", "stable"), n.replica("x", "b", "canary")
	n.awaits("a leads", "x", a.leads.Load)
	end()
	n.flip("canary")
	began := time.Now()
	n.coordinate()
	n.awaits("b leads by the next coordinator", "x", b.leads.Load)
	t.Logf("b leads %v after the next coordinator began", time.Duration(b.began.Load()-began.UnixNano()))
	if a.leads.Load() {
		t.Error("a leads, too")
	}
}

// Objects that others made, with nothing in them, stop nobody: a Lease without a spec, a candidate that never says that it lives.
func TestWhatSaysNothing(t *testing.T) {
	n := inNamespace(t)
	if _, err := n.client.CoordinationV1().Leases(n.namespace).Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	mute := &coordinationv1beta1.LeaseCandidate{
		ObjectMeta: metav1.ObjectMeta{Name: "mute.x", Labels: map[string]string{coordination.PriorityLabel: "9"}},
		Spec:       coordinationv1beta1.LeaseCandidateSpec{LeaseName: "x", BinaryVersion: "1.2.3", EmulationVersion: "1.2.3", Strategy: coordination.DefaultRevision},
	}
	if _, err := n.client.CoordinationV1beta1().LeaseCandidates(n.namespace).Create(t.Context(), mute, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	n.coordinate()
	a := n.replica("x", "a", "stable")
	n.awaits("a leads, which answers", "x", a.leads.Load)
	c, err := n.client.CoordinationV1beta1().LeaseCandidates(n.namespace).Get(t.Context(), "mute.x", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return // an API server that has just started collects what never said that it lives
	}
	if err != nil || c.Spec.PingTime == nil {
		t.Errorf("the one that would be best was not asked: %+v, %v", c, err)
	}
}

// A strategy that somebody edited is another's: the leader stays. The API server's own controller writes the candidates' again.
func TestAStrategyEditedByHand(t *testing.T) {
	n := inNamespace(t)
	n.coordinate()
	a, b := n.replica("x", "a", "stable"), n.replica("x", "b", "canary")
	n.awaits("a leads", "x", a.leads.Load)
	n.edit("x", func(l *coordinationv1.Lease) {
		l.Spec.Strategy = new(coordinationv1.CoordinatedLeaseStrategy("example.com/Other"))
	})
	n.flip("canary")
	if !a.leads.Load() || b.leads.Load() {
		t.Fatal("an election of another strategy was changed")
	}
	n.edit("x", func(l *coordinationv1.Lease) {
		l.Spec.Strategy = new(coordinationv1.CoordinatedLeaseStrategy(coordination.DefaultRevision))
	})
	n.awaits("b leads", "x", b.leads.Load)
}

// A strategy that was wiped, as an elector does that knows none, is written again, although the leader lives.
func TestAStrategyThatWasWiped(t *testing.T) {
	n := inNamespace(t)
	n.coordinate()
	a, b := n.replica("x", "a", "stable"), n.replica("x", "b", "canary")
	n.awaits("a leads", "x", a.leads.Load)
	n.edit("x", func(l *coordinationv1.Lease) { l.Spec.Strategy, l.Spec.PreferredHolder = nil, nil })
	n.flip("canary")
	n.awaits("b leads", "x", b.leads.Load)
}

func (n *coordinated) edit(name string, change func(*coordinationv1.Lease)) {
	n.t.Helper()
	for range 20 {
		l := n.lease(name)
		change(l)
		if _, err := n.client.CoordinationV1().Leases(n.namespace).Update(n.t.Context(), l, metav1.UpdateOptions{}); err == nil {
			return
		}
	}
	n.t.Fatal("the Lease cannot be edited")
}

// Two strategies at one binary version: it is said on the lock and the candidates, once, and nothing moves.
func TestTwoStrategiesAtOneVersion(t *testing.T) {
	n := inNamespace(t)
	var log harness.Log
	var recorded events
	n.coordinate(func(c *coordination.Config) {
		c.Logger, c.EventRecorder = slog.New(slog.NewTextHandler(&log, nil)), &recorded
	})
	a := n.replica("x", "a", "stable")
	n.awaits("a leads", "x", a.leads.Load)
	b := n.replica("x", "b", "canary", func(_ *k8sleaderelection.LeaderElectionConfig, p *coordination.PublisherConfig) {
		p.Strategy = "example.com/Other"
	})
	n.awaits("it is said", "x", func() bool { return log.Count("ask for different strategies") > 0 })
	n.flip("canary")
	b.stop()
	n.awaits("it is over", "x", func() bool { return log.Count("can be coordinated again") > 0 })
	if !a.leads.Load() || log.Count("ask for different strategies") != 1 {
		t.Errorf("a leads %v:\n%s", a.leads.Load(), log.String())
	}
	got := recorded.of("StrategiesDisagree")
	slices.Sort(got)
	want := []string{"Warning Lease x: ", "Warning LeaseCandidate " + a.identity + ": ", "Warning LeaseCandidate " + b.identity + ": "}
	if !slices.EqualFunc(got, want, func(event, about string) bool {
		return strings.HasPrefix(event, about) && strings.Contains(event, "asks for")
	}) {
		t.Errorf("Events: %q", got)
	}
}

// events are those that a coordinator writes.
type events struct {
	mu  sync.Mutex
	all []string
}

func (e *events) Eventf(object runtime.Object, eventType, reason, message string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	kind, named := "Lease", object.(metav1.Object)
	if _, is := object.(*coordinationv1beta1.LeaseCandidate); is {
		kind = "LeaseCandidate"
	}
	e.all = append(e.all, fmt.Sprintf("%s %s %s %s: ", reason, eventType, kind, named.GetName())+fmt.Sprintf(message, args...))
}

// of are those of one reason, without it.
func (e *events) of(reason string) (found []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, one := range e.all {
		if rest, is := strings.CutPrefix(one, reason+" "); is {
			found = append(found, rest)
		}
	}
	return found
}

// Kubernetes' own controller, in the API server, names one of ours, which acts on its own first write, and has it hand over
// to one of an older emulation version, without a lapse: leases are a minute long here.
func TestKubernetesOwnCoordinator(t *testing.T) {
	n := inNamespace(t)
	of := func(emulation string) func(*k8sleaderelection.LeaderElectionConfig, *coordination.PublisherConfig) {
		return func(_ *k8sleaderelection.LeaderElectionConfig, p *coordination.PublisherConfig) {
			p.Strategy, p.EmulationVersion = coordination.OldestEmulationVersion, emulation
		}
	}
	a := n.replica("x", "a", "stable", of("1.2.0"))
	n.awaits("a leads, named by the API server", "x", a.leads.Load)
	b := n.replica("x", "b", "stable", of("1.1.0"))
	began := time.Now()
	n.awaits("b leads, whose emulation version is older", "x", b.leads.Load)
	t.Logf("b leads %v after it had come", time.Duration(b.began.Load()-began.UnixNano()))
	b.stop()
	n.awaits("a leads again", "x", a.leads.Load)
	if strings.Contains(a.log.String(), "settling") || strings.Contains(b.log.String(), "settling") {
		t.Errorf("somebody has settled:\n%s%s", a.log.String(), b.log.String())
	}
}

// While nothing changes nobody writes anything: neither the coordinator nor candidates that follow. Two seconds without a write are enough
// for that, whenever they come: the leader renews every twenty.
func TestNothingChangesNothingIsSent(t *testing.T) {
	n := inNamespace(t)
	n.coordinate()
	a := n.replica("x", "a", "stable")
	n.replica("x", "b", "canary")
	n.awaits("a leads", "x", a.leads.Load)
	objects := func() string {
		l, err := n.client.CoordinationV1beta1().LeaseCandidates(n.namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		versions := n.lease("x").ResourceVersion
		for i := range l.Items {
			versions += " " + l.Items[i].Name + " " + l.Items[i].ResourceVersion
		}
		return versions
	}
	n.awaits("nothing is written", "x", func() bool {
		before := objects()
		<-time.After(2 * time.Second)
		return strings.Contains(before, "a.x") && strings.Contains(before, "b.x") && objects() == before
	})
}
