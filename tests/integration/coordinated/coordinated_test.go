package coordinated

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
)

func TestCoordinator_Chooses(t *testing.T) {
	w := newWorld(t)
	w.coordinate()
	stable, canary := w.candidate("stable-1", "stable"), w.candidate("canary-1", "canary")
	w.await("default revision leads", stable.leads.Load)
	candidates := w.admin().Kube().CoordinationV1beta1().LeaseCandidates(w.home)
	w.await("both are published", func() bool {
		list, err := candidates.List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 2
	})
	mine, err := candidates.Get(t.Context(), "stable-1.x", metav1.GetOptions{})
	if err != nil || len(mine.OwnerReferences) != 1 || mine.Labels[coordination.RevisionLabel] != "stable" {
		t.Errorf("LeaseCandidate %+v, %v", mine, err)
	}
	w.revision.Set("canary")
	w.await("new default leads", canary.leads.Load)
	canary.unfit.Store(true)
	w.await("unfit candidate is labelled", func() bool {
		mine, err := candidates.Get(t.Context(), "canary-1.x", metav1.GetOptions{})
		return err == nil && mine.Labels[coordination.FitLabel] == "false"
	})
	canary.unfit.Store(false)
	canary.stop()
	w.await("other candidate leads", stable.leads.Load)
	if _, err := candidates.Get(t.Context(), "canary-1.x", metav1.GetOptions{}); err == nil {
		t.Error("LeaseCandidate remains")
	}
}
