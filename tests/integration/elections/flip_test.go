package elections

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/revisions"
)

const defaultTag = "istio-revision-tag-default"

// setDefault makes revision the default one.
func (s *stage) setDefault(t testing.TB, revision string) {
	t.Helper()
	client := admin(t, s.cluster).AdmissionregistrationV1().MutatingWebhookConfigurations()
	hook, err := client.Get(t.Context(), defaultTag, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		hook = &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: defaultTag, Labels: map[string]string{"istio.io/rev": revision}}}
		if _, err := client.Create(t.Context(), hook, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	hook.Labels["istio.io/rev"] = revision
	if _, err := client.Update(t.Context(), hook, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// watched gives a replica's election a default watcher of its own, which it runs.
func watched(t testing.TB, r *replica) revisions.DefaultWatcher {
	t.Helper()
	watcher := revisions.NewDefaultWatcher(r.client, "", "istio-system")
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() { defer close(ended); watcher.Run(stop) }()
	t.Cleanup(func() {
		close(stop)
		<-ended
	})
	return watcher
}

// enterRanked runs a replica that follows the default revision.
func (s *stage) enterRanked(t testing.TB, name, revision string) *replica {
	t.Helper()
	watcher := watched(t, s.replica(name, revision))
	return s.enter(name, revision, func(c *leaderelection.Config) { c.DefaultWatcher = watcher })
}

// TestDefaultRevisionTakesOver is not parallel: the cluster has one default revision.
func TestDefaultRevisionTakesOver(t *testing.T) {
	for _, lock := range []leaderelection.LockType{leaderelection.ConfigMapLock, leaderelection.LeaseLock} {
		t.Run(lock.String(), func(t *testing.T) {
			s := newStage(t, lock)
			s.setDefault(t, "stable")
			stable, canary := s.enterRanked(t, "stable-1", "stable"), s.enterRanked(t, "canary-1", "canary")
			eventually(t, "stable leads", stable.live)
			s.setDefault(t, "canary")
			eventually(t, "canary leads", canary.live)
			s.setDefault(t, "stable")
			eventually(t, "stable leads again", stable.live)
			if id, key := canary.Leader(); id != "stable-1" || key != "stable" {
				t.Errorf("canary sees %q with key %q", id, key)
			}
			noOverlap(t, stable, canary)
			if !leaderelection.LocationPrioritizedComparison("canary", stable.LeaderElection) ||
				leaderelection.LocationPrioritizedComparison("stable", canary.LeaderElection) {
				t.Error("LocationPrioritizedComparison does not follow the default revision")
			}
		})
	}
}

// TestIstioConstructors moves over by import path alone.
func TestIstioConstructors(t *testing.T) {
	s := newStage(t, leaderelection.ConfigMapLock)
	s.setDefault(t, "stable")
	r := s.replica("pilot-1", "stable")
	stop, ended, started := make(chan struct{}), make(chan struct{}), make(chan struct{})
	le := leaderelection.NewLeaderElection(s.namespace, "pilot-1", election, "stable", r.client).
		AddRunFunction(func(stop <-chan struct{}) { close(started); <-stop })
	go func() { defer close(ended); le.Run(stop) }()
	eventually(t, "the run function started", func() bool {
		select {
		case <-started:
			return true
		default:
			return false
		}
	})
	if id, key := le.Leader(); !le.IsLeader() || id != "pilot-1" || key != "stable" {
		t.Errorf("leader %v, record %q %q", le.IsLeader(), id, key)
	}
	close(stop)
	<-ended
	if err := leaderelection.NewLeaseLeaderElection("", "x", "", "stable", r.client).RunContext(t.Context()); err == nil {
		t.Error("an election without a name was accepted")
	}
}
