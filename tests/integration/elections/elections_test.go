package elections

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	"incumbent.dev/incumbent/tests/cluster"
)

// both runs a test for each kind of lock.
func both(t *testing.T, f func(t *testing.T, s *stage)) {
	t.Helper()
	t.Parallel()
	for _, lock := range []leaderelection.LockType{leaderelection.ConfigMapLock, leaderelection.LeaseLock} {
		t.Run(lock.String(), func(t *testing.T) {
			t.Parallel()
			f(t, newStage(t, lock))
		})
	}
}

func TestGracefulStopHandsOn(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a, b := s.enter("a", "stable"), s.enter("b", "stable")
		first := leader(t, a, b)
		second := a
		if first == a {
			second = b
		}
		if id, key := second.Leader(); id != "" && (id != first.name || key != "stable") {
			t.Errorf("the follower sees %q with key %q", id, key)
		}
		if err := first.Quit(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the other leads", second.Live)
		second.came(t, "lock-free")
		lives.Apart(t, a, b)
	})
}

func TestCutOffLeaderStopsBeforeItsSuccessorStarts(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a := s.enter("a", "stable", brisk)
		eventually(t, "a leads", a.Live)
		b := s.enter("b", "stable", brisk)
		before := len(a.log.String())
		a.wire.setCut(true)
		eventually(t, "b leads", b.Live)
		b.came(t, "lease-expired")
		if a.Live() || a.IsLeader() {
			t.Error("a still acts")
		}
		lives.Apart(t, a, b)
		if n := strings.Count(a.log.String()[before:], "request for the lock failed"); n != 1 {
			t.Errorf("one trouble was reported %d times", n)
		}
	})
}

func TestDeletedLock(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a := s.enter("a", "stable")
		eventually(t, "a leads", a.Live)
		b := s.enter("b", "stable")
		eventually(t, "b follows", func() bool { id, _ := b.Leader(); return id == "a" })
		before := a.Status().Token
		s.deleteLock(t)
		eventually(t, "a leads again, in a new term", func() bool { return len(a.Spans()) == 2 && a.Live() })
		a.came(t, "lock-absent", "lock-absent")
		if after := a.Status().Token; after == before {
			t.Errorf("the new term has the token %q of the old one", after)
		}
		lives.Apart(t, a, b)
	})
}

func (s *stage) deleteLock(t testing.TB) {
	t.Helper()
	client := s.cluster.Client(t).Kube()
	var err error
	if s.lock == leaderelection.LeaseLock {
		err = client.CoordinationV1().Leases(s.namespace).Delete(t.Context(), election, metav1.DeleteOptions{})
	} else {
		err = client.CoreV1().ConfigMaps(s.namespace).Delete(t.Context(), election, metav1.DeleteOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestCorruptRecordIsReplacedAndOthersDataKept(t *testing.T) {
	t.Parallel()
	s := newStage(t, leaderelection.ConfigMapLock)
	client := s.cluster.Client(t).Kube().CoreV1().ConfigMaps(s.namespace)
	foreign := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: election, Labels: map[string]string{"team": "mesh"}, Annotations: map[string]string{"note": "keep"}},
		Data:       map[string]string{"other": "data"},
	}
	if _, err := client.Create(t.Context(), foreign, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	a := s.enter("a", "stable", brisk)
	eventually(t, "a leads on a ConfigMap that others use", a.Live)
	s.mutate(t, s.cluster.Client(t).Kube(), func(obj metav1.Object) {
		obj.GetAnnotations()["control-plane.alpha.kubernetes.io/leader"] = "{nonsense"
	})
	eventually(t, "a leads again", func() bool { return len(a.Spans()) == 2 })
	lives := a.Spans()
	if waited := lives[1].From.Sub(lives[0].Told); waited < briskLease-time.Second {
		t.Errorf("the record was replaced after %v, before it stood for a lease", waited)
	}
	cm, err := client.Get(t.Context(), election, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if cm.Data["other"] != "data" || cm.Labels["team"] != "mesh" || cm.Annotations["note"] != "keep" {
		t.Errorf("lost what others put there: %+v", cm)
	}
	if !strings.Contains(a.log.String(), "cannot be read") {
		t.Error("not reported")
	}
}

func TestMissingPermissionIsNamedAndRecovers(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a := s.replica("a", "stable")
		s.allow(t, "get", "update", "create") // not watch
		a.start(t)
		eventually(t, "a leads without a watch", a.Live)
		eventually(t, "the missing verb is named", func() bool {
			return strings.Contains(a.log.String(), "cannot watch resource")
		})
	})
}

// allow replaces the replicas' rights on locks.
func (s *stage) allow(t testing.TB, verbs ...string) {
	t.Helper()
	rules := rights()[:0:0]
	for group, resource := range map[string]string{"": "configmaps", "coordination.k8s.io": "leases"} {
		rule := rights()[0]
		rule.APIGroups, rule.Resources, rule.Verbs, rule.ResourceNames = []string{group}, []string{resource}, verbs, nil
		rules = append(rules, rule)
	}
	s.cluster.Identity(t, cluster.IdentityOptions{Namespace: s.namespace, PodName: "nobody", ServiceAccount: "pilot", Rules: rules})
}

func TestGatedClientRefusesOutsideTheTerm(t *testing.T) {
	t.Parallel()
	s := newStage(t, leaderelection.LeaseLock)
	a := s.replica("a", "stable")
	write := func() error {
		_, err := a.Client().Kube().CoreV1().ConfigMaps(s.namespace).Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}, metav1.CreateOptions{})
		return err
	}
	if err := write(); !errors.Is(err, fence.ErrNotLeader) {
		t.Fatalf("a write before the first term: %v", err)
	}
	a.start(t)
	eventually(t, "a leads", a.Live)
	if err := write(); err != nil {
		t.Errorf("a write of the leader: %v", err)
	}
	if err := a.Quit(); err != nil {
		t.Fatal(err)
	}
	var refused *fence.NotLeaderError
	if err := write(); !errors.As(err, &refused) || refused.Election != election {
		t.Errorf("a write after the term: %v", err)
	}
}

func TestPerRevisionElectionsAreApart(t *testing.T) {
	t.Parallel()
	s := newStage(t, leaderelection.LeaseLock)
	per := func(c *leaderelection.Config) { c.PerRevision = true }
	a, b := s.enter("a", "stable", per), s.enter("b", "canary", per)
	eventually(t, "both lead", func() bool { return a.Live() && b.Live() })
}

func TestDisabledTouchesNoLock(t *testing.T) {
	t.Parallel()
	s := newStage(t, leaderelection.LeaseLock)
	a := s.enter("a", "stable", func(c *leaderelection.Config) { c.Disabled = true })
	eventually(t, "a runs", a.Live)
	if n := a.wire.total(); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
	if !a.IsLeader() {
		t.Error("IsLeader is false while the functions run")
	}
}

func TestRestartUnderTheSameNameReclaims(t *testing.T) {
	both(t, func(t *testing.T, s *stage) {
		a := s.enter("a", "stable")
		eventually(t, "a leads", a.Live)
		a.die()
		again := s.enter("a", "stable")
		eventually(t, "the new process leads", again.Live)
		again.came(t, "own-name")
		if from, lapse := again.Spans()[0].From, a.wire.lastOwn().Add(calmLease); !from.Before(lapse) {
			t.Errorf("it began %v after the lease of its former self had run out", from.Sub(lapse))
		}
		lives.Apart(t, a, again)
	})
}
