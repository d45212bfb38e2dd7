package coordinated

import (
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var errCut = errors.New("the process has been killed")

// It comes before those that restart the API server: after that the garbage collector takes half a minute to know LeaseCandidates again.
//
// A process is killed and its Pod deleted: its LeaseCandidate goes with the Pod, as the garbage collector sees to, and the coordinator
// names another without asking one that is not there.
func TestACandidateWhosePodIsDeleted(t *testing.T) {
	w := newWorld(t)
	h := w.history()
	coordinator := w.coordinate()
	var cut atomic.Bool
	config := w.identity("stable-1", "pilot")
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if cut.Load() {
				return nil, errCut
			}
			return next.RoundTrip(request)
		})
	})
	stable, canary := w.candidateAs(config, "stable-1", "stable", brisk), w.candidate("canary-1", "canary", brisk)
	w.await("the default revision leads", stable.leads.Load)
	w.await("the other is published", func() bool { return w.leaseCandidate("canary-1") != nil })
	owner := w.leaseCandidate("stable-1").OwnerReferences
	cut.Store(true)
	if err := w.admin().Kube().CoreV1().Pods(w.home).Delete(t.Context(), "stable-1", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		t.Fatal(err)
	}
	w.await("its LeaseCandidate goes with its Pod", func() bool { return w.leaseCandidate("stable-1") == nil })
	if len(owner) != 1 || owner[0].Name != "stable-1" || owner[0].Kind != "Pod" {
		t.Errorf("its owners were %+v", owner)
	}
	w.await("the coordinator names the other", canary.leads.Load)
	if !slices.Equal(h.led(), []string{"", "stable-1.x", "canary-1.x"}) {
		t.Errorf("the leaders were %q", h.led())
	}
	if coordinator.log.Count("level=WARN")+coordinator.log.Count("level=ERROR") > 0 {
		t.Errorf("the coordinator says:\n%s", coordinator.log.String())
	}
}
