package elections

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
)

const defaultTag = "istio-revision-tag-default"

// setDefault makes revision the default one of this stage.
func (s *stage) setDefault(t testing.TB, revision string) {
	t.Helper()
	client := s.cluster.Client(t).Kube().AdmissionregistrationV1().MutatingWebhookConfigurations()
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
			eventually(t, "stable leads", stable.Live)
			s.setDefault(t, "canary")
			eventually(t, "canary leads", canary.Live)
			s.setDefault(t, "stable")
			eventually(t, "stable leads again", stable.Live)
			if id, key := canary.Leader(); id != "stable-1" || key != "stable" {
				t.Errorf("canary sees %q with key %q", id, key)
			}
			lives.Apart(t, stable, canary)
			if !leaderelection.LocationPrioritizedComparison("canary", stable.LeaderElection) ||
				leaderelection.LocationPrioritizedComparison("stable", canary.LeaderElection) {
				t.Error("LocationPrioritizedComparison does not follow the default revision")
			}
		})
	}
}

// TestIstioConstructors moves over by import path alone: each takes its kind of lock, under its key,
// and its functions run in a term whose token is in their context.
func TestIstioConstructors(t *testing.T) {
	for name, c := range map[string]struct {
		make func(namespace string, client kube.Client) *leaderelection.LeaderElection
		kind leaderelection.LockType
		lock string
		key  string
	}{
		"ConfigMap": {func(namespace string, client kube.Client) *leaderelection.LeaderElection {
			return leaderelection.NewLeaderElection(namespace, "pilot-1", election, "stable", client)
		}, leaderelection.ConfigMapLock, election, "stable"},
		"Lease": {func(namespace string, client kube.Client) *leaderelection.LeaderElection {
			return leaderelection.NewLeaseLeaderElection(namespace, "pilot-1", election, "stable", client)
		}, leaderelection.LeaseLock, election, "stable"},
		"per revision": {func(namespace string, client kube.Client) *leaderelection.LeaderElection {
			return leaderelection.NewPerRevisionLeaderElection(namespace, "pilot-1", election, "stable", client)
		}, leaderelection.LeaseLock, election + "-stable", "stable"},
		"multicluster": {func(namespace string, client kube.Client) *leaderelection.LeaderElection {
			return leaderelection.NewLeaderElectionMulticluster(namespace, "pilot-1", election, "stable", false, client)
		}, leaderelection.ConfigMapLock, election, "stable"},
		"multicluster, remote": {func(namespace string, client kube.Client) *leaderelection.LeaderElection {
			return leaderelection.NewLeaderElectionMulticluster(namespace, "pilot-1", election, "stable", true, client)
		}, leaderelection.ConfigMapLock, election, "^stable"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, c.kind)
			s.system = "istio-system"
			s.setDefault(t, "stable")
			r := s.replica("pilot-1", "stable")
			stop, ended, started := make(chan struct{}), make(chan struct{}), make(chan struct{})
			tokens := make(chan uint64, 1)
			le := c.make(s.namespace, r.client).
				AddRunFunction(func(stop <-chan struct{}) { close(started); <-stop }).
				AddRunContext(func(ctx context.Context) error {
					term, _ := k8sleaderelection.TermFromContext(ctx)
					tokens <- term.Token
					<-ctx.Done()
					return nil
				})
			go func() { defer close(ended); le.Run(stop) }()
			within(t, "a start of the run function", started)
			if token := <-tokens; token == 0 || fmt.Sprint(token) != fmt.Sprint(le.Status().Token) {
				t.Errorf("the run function's token is %d, that of the term %v", token, le.Status().Token)
			}
			if id, key := le.Leader(); !le.IsLeader() || id != "pilot-1" || key != c.key {
				t.Errorf("leader %v, record %q %q", le.IsLeader(), id, key)
			}
			if got := s.stored(t, c.lock); got.HolderIdentity != "pilot-1" || got.HolderKey != c.key {
				t.Errorf("the lock %s: %+v", c.lock, got)
			}
			close(stop)
			within(t, "the end of Run", ended)
		})
	}
	s := newStage(t, leaderelection.LeaseLock)
	if err := leaderelection.NewLeaseLeaderElection("", "x", "", "stable", s.replica("pilot-1", "stable").client).RunContext(t.Context()); err == nil {
		t.Error("an election without a name was accepted")
	}
}

// stored is the record of the lock object of that name.
func (s *stage) stored(t *testing.T, name string) k8sresourcelock.LeaderElectionRecord {
	t.Helper()
	if s.lock == leaderelection.LeaseLock {
		lease, err := s.cluster.Client(t).Kube().CoordinationV1().Leases(s.namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return k8sresourcelock.LeaseSnapshot(lease).Record
	}
	cm, err := s.cluster.Client(t).Kube().CoreV1().ConfigMaps(s.namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return k8sresourcelock.ConfigMapSnapshot(cm).Record
}
