package fence

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/internal/testutil/defaults"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pilot/controllers/namespace"
	"incumbent.dev/incumbent/pilot/leaderelection"
	locks "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/tests/cluster"
)

// run runs a candidate until quit or the end of the test.
func (s *stage) run(config *rest.Config, c leaderelection.Config) (le *leaderelection.LeaderElection, quit func()) {
	s.t.Helper()
	c.Namespace, c.Logger = s.namespace, slog.New(slog.DiscardHandler)
	c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = lease, lease/2, 2*time.Second
	le, err := leaderelection.New(cluster.ClientFor(s.t, config), c)
	harness.Must(s.t, err)
	return le, harness.Background(s.t, le.RunContext)
}

// installPlane installs the fence of pilot server for revision stable.
func (s *stage) installPlane(lock string) {
	s.t.Helper()
	config := install.Config{
		RESTConfig: s.cluster.Admin(), Namespace: s.namespace, Elections: bootstrap.FencedElections(bootstrap.Config{}),
		Revisions: []string{"stable"}, ServiceAccounts: []string{account}, Others: []string{"istiod"}, Lock: lock, Wait: harness.Patience, Judging: install.Judging{AllowUnclear: true},
	}
	s.must(nil, config.Install(s.t.Context(), s.t.Output()))
	s.t.Cleanup(func() {
		if err := config.Remove(cleanup(s.t), s.t.Output()); err != nil {
			s.t.Error(err)
		}
	})
}

// The fence of the server guards the locks of elections without guarded writes, and admits all changes of their electors.
func TestFence_LocksWithoutGuards(t *testing.T) {
	t.Parallel()
	s := newStage(t, "")
	s.installPlane("configmap")
	foreign, watcher := s.podOf("o", "other").Kube(), defaults.New("stable")

	ingress := leaderelection.Config{ElectionID: leaderelection.IngressController, Lock: leaderelection.LockTypeConfigMap, DefaultWatcher: watcher}
	enter := func(name, account string, c leaderelection.Config, revision string) (*leaderelection.LeaderElection, func()) {
		c.Identity, c.Revision = name, revision
		return s.run(s.identity(name, account), c)
	}
	a, _ := enter("a", account, ingress, "stable")
	eventually(t, "a leads", a.IsLeader)
	b, quitB := enter("b", account, ingress, "canary")
	eventually(t, "b follows", func() bool { id, _ := b.Leader(); return id == "a" })
	s.refused("another account empties the lock of the ingress", steal(t, s, foreign, leaderelection.IngressController, true), "configmap "+s.namespace+"/"+leaderelection.IngressController)
	watcher.Set("canary")
	eventually(t, "b was handed the lock", b.IsLeader)
	quitB()
	eventually(t, "a leads again", a.IsLeader)

	legacy := leaderelection.Config{ElectionID: leaderelection.GatewayStatusController, Lock: leaderelection.LockTypeConfigMap, DefaultWatcher: watcher}
	status := leaderelection.Config{
		ElectionID: leaderelection.GatewayStatusController, PerRevision: true, DefaultWatcher: watcher,
		Predecessor: &leaderelection.Predecessor{Name: leaderelection.GatewayStatusController, Lock: leaderelection.LockTypeConfigMap},
	}
	old, quitOld := enter("old", "istiod", legacy, "old")
	eventually(t, "the legacy candidate leads", old.IsLeader)
	c, quitC := enter("c", account, status, "stable")
	watcher.Set("stable") // the legacy candidate hands over
	eventually(t, "c leads", c.IsLeader)
	quitOld() // it acquires the lock after the release of c, and only then releases it
	eventually(t, "c has released the legacy lock", func() bool {
		cm, err := s.admin.CoreV1().ConfigMaps(s.namespace).Get(t.Context(), leaderelection.GatewayStatusController, metav1.GetOptions{})
		return err == nil && strings.Contains(cm.Annotations[locks.LeaderElectionRecordAnnotationKey], `"holderIdentity":""`)
	})
	name := leaderelection.GatewayStatusController + "-stable"
	s.refused("another account empties the lock of the status", steal(t, s, foreign, name, false), "lease "+s.namespace+"/"+name, "only the holder")
	d, _ := enter("d", account, status, "stable")
	eventually(t, "d follows", func() bool { id, _ := d.Leader(); return id == "c" })
	quitC()
	eventually(t, "d leads", d.IsLeader)
}

// steal removes the holder of a lock.
func steal(t *testing.T, s *stage, as kubernetes.Interface, name string, configMap bool) error {
	t.Helper()
	if configMap {
		lock, err := s.admin.CoreV1().ConfigMaps(s.namespace).Get(t.Context(), name, metav1.GetOptions{})
		s.must(nil, err)
		delete(lock.Annotations, locks.LeaderElectionRecordAnnotationKey)
		_, err = as.CoreV1().ConfigMaps(s.namespace).Update(t.Context(), lock, metav1.UpdateOptions{})
		return err
	}
	lock, err := s.admin.CoordinationV1().Leases(s.namespace).Get(t.Context(), name, metav1.GetOptions{})
	s.must(nil, err)
	lock.Spec.HolderIdentity = new(string)
	_, err = as.CoordinationV1().Leases(s.namespace).Update(t.Context(), lock, metav1.UpdateOptions{})
	return err
}

// The first candidate acquires the lock of each controller, of each type, while the fence is in effect and no lock exists. Then its guarded
// writes are admitted.
func TestFence_FirstAcquisition(t *testing.T) {
	t.Parallel()
	for _, lock := range []string{"configmap", "lease", "multi"} {
		t.Run(lock, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, "")
			s.installPlane(lock)
			bundle := func(as kubernetes.Interface) error {
				o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: namespace.ConfigMapName}}
				_, err := as.CoreV1().ConfigMaps(s.namespace).Create(t.Context(), o, metav1.CreateOptions{DryRun: dryRun})
				return err
			}
			stranger, candidate := s.pod("stranger"), s.identity("a", account)
			eventually(t, "the fence is in effect", func() bool { return fence.IsRefusal(bundle(stranger)) })
			for _, e := range bootstrap.FencedElections(bootstrap.Config{}) {
				c := leaderelection.Config{Identity: "a", Revision: "stable", ElectionID: e.ID, PerRevision: e.PerRevision, DefaultWatcher: defaults.New("stable")}
				switch {
				case e.Lease:
				case lock == "configmap":
					c.Lock = leaderelection.LockTypeConfigMap
				case lock == "multi":
					c.Predecessor = &leaderelection.Predecessor{Name: e.ID, Lock: leaderelection.LockTypeConfigMap, Hold: true}
				}
				first, _ := s.run(candidate, c)
				eventually(t, e.ID+" is led", first.IsLeader)
				if e.ID == leaderelection.NamespaceController {
					eventually(t, "its leader writes", func() bool { return bundle(first.Client().Kube()) == nil })
				}
			}
			s.refused("a write of another pod", bundle(stranger))
		})
	}
}
