package interop

import (
	"context"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/peers/electors"
)

// anyOf returns a condition that holds while one of the members runs.
func anyOf(members ...*member) func() bool {
	return func() bool { return slices.ContainsFunc(members, func(m *member) bool { return m.Live() }) }
}

// stopOthers waits until only the holder runs.
func (s *stage) stopOthers() {
	s.t.Helper()
	harness.Until(s.t, "only the holder runs", func() bool {
		holder := s.journal.holder()
		return !slices.ContainsFunc(s.members, func(m *member) bool { return m.Live() && m.Identity != holder })
	})
}

// setDefault sets the default revision of the cluster.
func setDefault(t *testing.T, admin kubernetes.Interface, revision string) {
	t.Helper()
	if _, err := electors.SetDefault(t.Context(), admin, revision); err != nil {
		t.Fatal(err)
	}
}

// noDefault removes the default revision.
func noDefault(t *testing.T, admin kubernetes.Interface) {
	ctx := context.WithoutCancel(t.Context())
	err := admin.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, electors.DefaultTag, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

// flip is a pairing with the first candidate in revision stable and the second in canary. Another incumbent candidate
// shares the revision of the incumbent one.
type flip struct {
	*stage
	stable, canary []*member
}

func newFlip(t *testing.T, p pairing) flip {
	s := newStage(t, p.lock, election)
	of := func(spec *electors.Spec) { spec.Revision = canary }
	f := flip{stage: s, stable: []*member{s.enter(p.first, p.first.String()+"-stable")}}
	s.leads(f.stable[0])
	f.canary = []*member{s.enter(p.second, p.second.String()+"-canary", of)}
	s.joined(f.canary[0])
	if p.second == electors.Incumbent {
		f.canary = append(f.canary, s.enter(electors.Incumbent, "further-canary", of))
		s.joined(f.canary[1])
	} else {
		// No incumbent candidate in canary: its watch would be faster than the peer's poll.
		f.stable = append(f.stable, s.enter(electors.Incumbent, "further-stable"))
		s.joined(f.stable[1])
	}
	return f
}

// moved waits until one side runs and the other has stopped.
func (f flip) moved(to, from []*member) {
	f.t.Helper()
	harness.Until(f.t, "the other revision leads", anyOf(to...))
	for _, m := range from {
		f.stops(m)
	}
	f.stopOthers()
}

// All pairings run concurrently, because the cluster has one default revision. client-go has no revisions: it is
// preempted, and never preempts. Only the lease of keeper is so long that a busy machine does not end its term.
func TestDefaultRevisionChange(t *testing.T) {
	admin, err := kubernetes.NewForConfig(cluster.Shared(t).Admin())
	harness.Must(t, err)
	t.Cleanup(func() { noDefault(t, admin) })
	setDefault(t, admin, stable)
	var flips []flip
	for _, p := range append([]pairing{{electors.ConfigMap, electors.Incumbent, electors.Incumbent}, {electors.Lease, electors.Incumbent, electors.Incumbent}}, ranked...) {
		flips = append(flips, newFlip(t, p))
	}
	taken := newFlip(t, pairing{electors.Lease, electors.ClientGo, electors.Incumbent})
	kept := newStage(t, electors.Lease, election)
	keeper := kept.enter(electors.Incumbent, "keeper", func(spec *electors.Spec) { spec.Timing = electors.IstioTiming })
	kept.leads(keeper)
	goes := kept.enter(electors.ClientGo, "go")
	kept.joined(goes)

	setDefault(t, admin, canary)
	for _, f := range append(flips, taken) {
		f.moved(f.canary, f.stable)
	}
	setDefault(t, admin, stable)
	for _, f := range flips {
		f.moved(f.stable, f.canary)
	}
	if len(keeper.Spans()) != 1 || !keeper.Live() || len(goes.Spans()) != 0 {
		t.Errorf("incumbent ran at %v, client-go at %v", keeper.Spans(), goes.Spans())
	}
}
