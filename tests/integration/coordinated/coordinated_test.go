package coordinated

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
)

// events records Events.
type events struct {
	mu  sync.Mutex
	all []string
}

func (e *events) Eventf(object runtime.Object, eventType, reason, message string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, fmt.Sprintf("%s %s %T %s: %s", reason, eventType, object, object.(metav1.Object).GetName(), fmt.Sprintf(message, args...)))
}

// of returns the Events of a reason.
func (e *events) of(reason string) (found []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.all {
		if rest, match := strings.CutPrefix(event, reason+" "); match {
			object, _, _ := strings.Cut(rest, ": ")
			found = append(found, object)
		}
	}
	slices.Sort(found)
	return found
}

func TestCoordinator_Chooses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var recorded events
	w.coordinate(func(c *coordination.Config) { c.EventRecorder = &recorded })
	stable := w.candidate("stable-1", "stable")
	w.await("default revision leads", stable.leads.Load)
	canary := w.candidate("canary-1", "canary")
	w.await("other candidate is published", func() bool { return w.leaseCandidate("canary-1") != nil })
	mine := w.leaseCandidate("stable-1")
	if mine == nil || len(mine.OwnerReferences) != 1 || mine.Labels[coordination.RevisionLabel] != "stable" {
		t.Errorf("LeaseCandidate %+v", mine)
	}
	for _, revision := range []string{"canary", "stable", "canary"} {
		w.revision.Set(revision)
		w.await("new default leads", map[string]*candidate{"stable": stable, "canary": canary}[revision].leads.Load)
	}
	// One Event per change of the default revision. Later, another is possible: if the coordinator sees that a candidate stops before
	// it has released the lock, it prefers the other.
	w.await("Events", func() bool { return len(recorded.of("LeaderPreferred")) >= 3 })
	if n := len(recorded.of("LeaderPreferred")); len(recorded.of("LeaderNamed")) == 0 || n != 3 {
		t.Errorf("Events: %q", recorded.all)
	}
	canary.unfit.Store(true)
	w.await("unfit candidate is labelled", func() bool {
		return w.leaseCandidate("canary-1").Labels[coordination.FitLabel] == "false"
	})
	canary.unfit.Store(false)
	canary.stop()
	w.await("other candidate leads", stable.leads.Load)
	if w.leaseCandidate("canary-1") != nil {
		t.Error("LeaseCandidate remains")
	}
	spec := w.lease().Spec
	if string(value(spec.Strategy)) != coordination.DefaultRevision || spec.PreferredHolder != nil || *spec.LeaseTransitions < 5 {
		t.Errorf("%+v", spec)
	}
	if stable.log.Count("level=WARN")+stable.log.Count("settling") > 0 {
		t.Errorf("a candidate settled, or logged a warning:\n%s", stable.log.String())
	}
}

// A Lease without a spec and a candidate that never answers do not block the election.
func TestCoordinator_IncompleteObjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	api := w.admin().Kube()
	_, errLease := api.CoordinationV1().Leases(w.home).Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
	_, errMute := api.CoordinationV1beta1().LeaseCandidates(w.home).Create(t.Context(), &coordinationv1beta1.LeaseCandidate{
		ObjectMeta: metav1.ObjectMeta{Name: "mute.x", Labels: map[string]string{coordination.PriorityLabel: "9"}},
		Spec:       coordinationv1beta1.LeaseCandidateSpec{LeaseName: "x", BinaryVersion: "1.2.3", EmulationVersion: "1.2.3", Strategy: coordination.DefaultRevision},
	}, metav1.CreateOptions{})
	if errLease != nil || errMute != nil {
		t.Fatal(errLease, errMute)
	}
	w.coordinate()
	stable := w.candidate("stable-1", "stable")
	w.await("the candidate leads", stable.leads.Load)
	// An API server that just started deletes candidates without a renewTime.
	if c := w.leaseCandidate("mute"); c != nil && c.Spec.PingTime == nil {
		t.Errorf("the best candidate was not pinged: %+v", c)
	}
}

// An election with an edited strategy belongs to another coordinator while it has a leader.
func TestCoordinator_EditedStrategy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.coordinate()
	stable, canary := w.candidate("stable-1", "stable"), w.candidate("canary-1", "canary")
	w.await("default revision leads", stable.leads.Load)
	w.setStrategy("example.com/Other")
	w.revision.Set("canary")
	if !stable.leads.Load() || canary.leads.Load() {
		t.Fatal("an election of another strategy was changed")
	}
	w.setStrategy(coordination.DefaultRevision)
	w.await("new default leads", canary.leads.Load)
}

func (w *world) setStrategy(strategy coordinationv1.CoordinatedLeaseStrategy) {
	w.t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		l := w.lease()
		l.Spec.Strategy = &strategy
		_, err := w.admin().Kube().CoordinationV1().Leases(w.home).Update(w.t.Context(), l, metav1.UpdateOptions{})
		return err
	})
	if err != nil && !apierrors.IsConflict(err) {
		w.t.Fatal(err)
	}
}

// The conflict is logged once and recorded as an Event on the lock and the candidates. The leader stays.
func TestCoordinator_StrategiesDisagree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var recorded events
	c := w.coordinate(func(c *coordination.Config) { c.EventRecorder = &recorded })
	stable := w.candidate("stable-1", "stable")
	w.await("default revision leads", stable.leads.Load)
	canary := w.candidate("canary-1", "canary", func(c *leaderelection.Config) { c.Coordination.Strategy = "example.com/Other" })
	w.await("conflict logged", func() bool { return c.log.Count("request different strategies") > 0 })
	w.revision.Set("canary")
	canary.stop()
	w.await("conflict resolved", func() bool { return c.log.Count("problem of the election resolved") > 0 })
	if !stable.leads.Load() || c.log.Count("request different strategies") != 1 {
		t.Errorf("leads: %v\n%s", stable.leads.Load(), c.log.String())
	}
	want := []string{"Warning *v1.Lease x", "Warning *v1beta1.LeaseCandidate canary-1.x", "Warning *v1beta1.LeaseCandidate stable-1.x"}
	if got := recorded.of("StrategiesDisagree"); !slices.Equal(got, want) {
		t.Errorf("Events: %q", got)
	}
}

// emulating requests the strategy of Kubernetes.
func emulating(version string) func(*leaderelection.Config) {
	return func(c *leaderelection.Config) {
		c.Coordination.Strategy = coordination.OldestEmulationVersion
		c.Coordination.EmulationVersion = version
	}
}

// The coordinator of the API server names candidates of this module and requests a handover to an older emulation version.
func TestKubernetesStrategy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	newer := w.candidate("a", "stable", emulating("0.9.0"))
	w.await("the only candidate leads", newer.leads.Load)
	older := w.candidate("b", "stable", emulating("0.8.0"))
	w.await("the older emulation version leads", older.leads.Load)
	older.stop()
	w.await("the other leads again", newer.leads.Load)
	if newer.log.Count("settling")+older.log.Count("settling") > 0 {
		t.Errorf("a candidate settled:\n%s\n%s", newer.log.String(), older.log.String())
	}
}
