package elections

import (
	"context"
	"log/slog"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/revisions"
)

const defaultTag = "istio-revision-tag-default"

// setDefault makes revision the default one of this stage.
func (s *stage) setDefault(t testing.TB, revision string) {
	t.Helper()
	client := admin(t, s.cluster).AdmissionregistrationV1().MutatingWebhookConfigurations()
	hook, err := client.Get(t.Context(), s.tag(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		hook = &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: s.tag(), Labels: map[string]string{"istio.io/rev": revision}}}
		if _, err := client.Create(t.Context(), hook, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		s.t.Cleanup(func() { // no namespace takes it along
			ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), soon)
			defer cancel()
			if err := client.Delete(ctx, s.tag(), metav1.DeleteOptions{}); err != nil {
				s.t.Error(err)
			}
		})
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
func (s *stage) watched(t testing.TB, r *replica) revisions.DefaultWatcher {
	t.Helper()
	watcher := revisions.NewDefault(r.client, revisions.Config{
		Revision: "", Namespace: s.system, Logger: slog.New(slog.NewTextHandler(r.log, nil)),
	})
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() { defer close(ended); watcher.Run(stop) }()
	t.Cleanup(func() {
		close(stop)
		<-ended
	})
	return watcher
}

// enterRanked runs a replica that follows the default revision.
func (s *stage) enterRanked(t testing.TB, name, revision string, change ...func(*leaderelection.Config)) *replica {
	t.Helper()
	r := s.ranked(t, name, revision, change...)
	r.start(t)
	return r
}

// ranked is a replica that follows the default revision and does not run yet. Its
// watcher has synced, unless it may not.
func (s *stage) ranked(t testing.TB, name, revision string, change ...func(*leaderelection.Config)) *replica {
	t.Helper()
	var watcher later
	r := s.replica(name, revision, append(change, func(c *leaderelection.Config) { c.DefaultWatcher = &watcher })...)
	watcher.DefaultWatcher = s.watched(t, r)
	if !s.blind[name] {
		eventually(t, name+" knows the default revision", watcher.HasSynced)
	}
	return r
}

// later is a watcher that is made of the client of the election that it is for.
type later struct{ revisions.DefaultWatcher }

// TestDefaultRevisionTakesOver is not parallel: the cluster has one default revision.
func TestDefaultRevisionTakesOver(t *testing.T) {
	for _, lock := range []leaderelection.LockType{leaderelection.ConfigMapLock, leaderelection.LeaseLock} {
		t.Run(lock.String(), func(t *testing.T) {
			s := newStage(t, lock)
			s.system = "istio-system"
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
	s.system = "istio-system"
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
