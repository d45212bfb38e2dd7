package interop

import (
	"context"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/peers/electors"
)

type ctx = context.Context

// anyOf waits until one of the members works.
func anyOf(members ...*member) func(ctx) error {
	return func(ctx ctx) error {
		return until(ctx, func() bool {
			for _, m := range members {
				if m.Live() {
					return true
				}
			}
			return false
		})
	}
}

// stopOthers waits until nobody works but the holder.
func (s *stage) stopOthers() {
	s.t.Helper()
	s.await("only the holder works", func(ctx ctx) error {
		return until(ctx, func() bool {
			holder := s.journal.holder()
			for _, m := range s.members {
				if m.Live() && m.Identity != holder {
					return false
				}
			}
			return true
		})
	})
}

const defaultTag = "istio-revision-tag-default"

// setDefault makes revision the default one of the cluster.
func setDefault(t *testing.T, admin kubernetes.Interface, revision string) {
	t.Helper()
	hooks := admin.AdmissionregistrationV1().MutatingWebhookConfigurations()
	hook, err := hooks.Get(t.Context(), defaultTag, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		hook = &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{
			Name: defaultTag, Labels: map[string]string{"istio.io/rev": revision},
		}}
		_, err = hooks.Create(t.Context(), hook, metav1.CreateOptions{})
	} else if err == nil {
		hook.Labels["istio.io/rev"] = revision
		_, err = hooks.Update(t.Context(), hook, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestDefaultRevisionMoves plays all pairings at once: the cluster has one default
// revision. The other tests' candidates are all of one revision and do not mind.
func TestDefaultRevisionMoves(t *testing.T) {
	admin, err := kubernetes.NewForConfig(cluster.Shared(t).Admin())
	if err != nil {
		t.Fatal(err)
	}
	setDefault(t, admin, stable)
	type pair struct {
		*stage
		stable, canary, further *member
	}
	var pairs []pair
	pairings := append([]pairing{{electors.ConfigMap, electors.Incumbent, electors.Incumbent}, {electors.Lease, electors.Incumbent, electors.Incumbent}}, ranked...)
	for _, p := range pairings {
		s := newStage(t, p.lock, election)
		of := func(spec *electors.Spec) { spec.Revision = canary }
		first := s.enter(p.first, p.first.String()+"-stable")
		s.leads(first)
		second := s.enter(p.second, p.second.String()+"-canary", of)
		further := s.enter(electors.Incumbent, "further-canary", of)
		s.joined(second)
		s.joined(further)
		pairs = append(pairs, pair{s, first, second, further})
	}
	setDefault(t, admin, canary)
	for _, p := range pairs {
		p.await("canary leads", anyOf(p.canary, p.further))
		p.stops(p.stable)
		p.stopOthers()
	}
	setDefault(t, admin, stable)
	for _, p := range pairs {
		p.leads(p.stable)
		p.stops(p.canary)
		p.stops(p.further)
	}
}
