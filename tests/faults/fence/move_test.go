package fence

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/testutil/defaults"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/controllers/namespace"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

// The fence admits all writes of the leader while an election moves from a ConfigMap to a Lease, and none of another pod.
func TestFence_MigrationToLease(t *testing.T) {
	t.Parallel()
	s := newStage(t, "")
	write := func(as kubernetes.Interface) error {
		_, err := as.CoreV1().ConfigMaps(s.namespace).Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: namespace.ConfigMapName}}, metav1.CreateOptions{DryRun: dryRun})
		return err
	}
	enter := func(name string, lock leaderelection.LockType, old *leaderelection.Predecessor) (*leaderelection.LeaderElection, func()) {
		return s.run(s.identity(name, account), leaderelection.Config{
			Identity: name, ElectionID: leaderelection.NamespaceController, Revision: "stable", Lock: lock, Predecessor: old, DefaultWatcher: defaults.New("stable"),
		})
	}
	stranger, foreign := s.pod("stranger"), s.podOf("o", "other").Kube()
	one, quitOne := enter("one", leaderelection.LockTypeConfigMap, nil)
	eventually(t, "one leads by the ConfigMap", one.IsLeader)
	s.installPlane("configmap")
	other, first := s.tally(func() error { return write(stranger) }), s.tally(func() error { return write(one.Client().Kube()) })
	s.installPlane("multi")

	both, quitBoth := enter("both", leaderelection.LockTypeLease, &leaderelection.Predecessor{Name: leaderelection.NamespaceController, Lock: leaderelection.LockTypeConfigMap, Hold: true})
	quitOne()
	eventually(t, "both leads by both locks", both.IsLeader)
	second := s.tally(func() error { return write(both.Client().Kube()) })
	for _, configMap := range []bool{true, false} {
		s.refused("another account empties a lock", steal(t, s, foreign, leaderelection.NamespaceController, configMap), leaderelection.NamespaceController)
	}
	s.installPlane("lease")
	s.installPlane("multi") // the way back
	s.installPlane("lease")

	last, _ := enter("last", leaderelection.LockTypeLease, nil)
	eventually(t, "last follows", func() bool { id, _ := last.Leader(); return id == "both" })
	quitBoth()
	eventually(t, "last leads by the Lease", last.IsLeader)
	third := s.tally(func() error { return write(last.Client().Kube()) })
	if err := s.admin.CoreV1().ConfigMaps(s.namespace).Delete(t.Context(), leaderelection.NamespaceController, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	eventually(t, "last writes", func() bool { return write(last.Client().Kube()) == nil })
	for name, leader := range map[string]func() (int, int){"one": first, "both": second, "last": third} {
		if admitted, refused := leader(); admitted == 0 || refused > 0 {
			t.Errorf("of the writes of %s, %d were admitted and %d refused", name, admitted, refused)
		}
	}
	if admitted, refused := other(); admitted > 0 || refused == 0 {
		t.Errorf("of another pod's writes, %d were admitted and %d refused", admitted, refused)
	}
	policies, err := s.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(t.Context(), metav1.ListOptions{LabelSelector: fence.SetLabel + "=" + s.namespace})
	harness.Must(t, err)
	found := 0
	for _, p := range policies.Items {
		if p.Spec.ParamKind != nil {
			found++
		}
		if strings.Contains(p.Name, ".configmap.") {
			t.Errorf("policy %s is left", p.Name)
		}
	}
	if found == 0 {
		t.Error("no policy with a parameter found")
	}
}
