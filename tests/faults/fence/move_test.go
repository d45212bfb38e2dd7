package fence

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/internal/testutil/defaults"
	"incumbent.dev/incumbent/internal/testutil/waits"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pilot/controllers/namespace"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

// A fence is in effect in each step of a migration from a ConfigMap to a Lease, and rejects no write of the leader.
func TestFence_MigrationToLease(t *testing.T) {
	t.Parallel()
	s := newStage(t, fence.Lease)
	write := func(as kubernetes.Interface) error {
		_, err := as.CoreV1().ConfigMaps(s.namespace).Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: namespace.ConfigMapName}}, metav1.CreateOptions{DryRun: dryRun})
		return err
	}
	enter := func(name string, lock leaderelection.LockType, held *leaderelection.Predecessor) (*leaderelection.LeaderElection, func()) {
		return s.run(s.identity(name, account), leaderelection.Config{
			Identity: name, ElectionID: leaderelection.NamespaceController, Revision: "stable", Lock: lock, Predecessor: held,
			DefaultWatcher: defaults.New("stable"),
		})
	}
	install := func(lock string) {
		t.Helper()
		t.Logf("pilot fence install --lock %s", lock)
		config := install.Config{RESTConfig: s.cluster.Admin(), Namespace: s.namespace, Elections: bootstrap.FencedElections(bootstrap.Config{DisableGatewayAPI: true}), ServiceAccounts: []string{account}, Revisions: []string{"stable"}, Lock: lock, Wait: waits.Bound}
		if err := config.Install(t.Context(), t.Output()); err != nil {
			t.Fatal(err)
		}
	}
	stranger := s.pod("stranger")
	one, quitOne := enter("one", leaderelection.LockTypeConfigMap, nil)
	eventually(t, "one leads by the ConfigMap", one.IsLeader)
	install("configmap")
	other, first := s.tally(func() error { return write(stranger) }), s.tally(func() error { return write(one.Client().Kube()) })

	both, quitBoth := enter("both", leaderelection.LockTypeLease,
		&leaderelection.Predecessor{Name: leaderelection.NamespaceController, Lock: leaderelection.LockTypeConfigMap, Hold: true})
	quitOne()
	eventually(t, "both leads by both", both.IsLeader)
	second := s.tally(func() error { return write(both.Client().Kube()) })
	install("multi")
	install("configmap") // the way back
	install("multi")
	install("lease") // no candidate holds the ConfigMap only

	last, _ := enter("last", leaderelection.LockTypeLease, nil)
	eventually(t, "last follows", func() bool { id, _ := last.Leader(); return id == "both" })
	quitBoth()
	eventually(t, "last leads by the Lease", last.IsLeader)
	third := s.tally(func() error { return write(last.Client().Kube()) })
	if err := s.admin.CoreV1().ConfigMaps(s.namespace).Delete(t.Context(), leaderelection.NamespaceController, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	eventually(t, "last writes once more", func() bool { return write(last.Client().Kube()) == nil })
	for name, leader := range map[string]func() (int, int){"one": first, "both": second, "last": third} {
		if admitted, refused := leader(); admitted == 0 || refused > 0 {
			t.Errorf("of the writes of %s, %d were admitted and %d refused", name, admitted, refused)
		}
	}
	if admitted, refused := other(); admitted > 0 || refused == 0 {
		t.Errorf("of another pod's writes, %d were admitted and %d refused", admitted, refused)
	}
	policies, err := s.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(t.Context(), metav1.ListOptions{LabelSelector: fence.SetLabel})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, p := range policies.Items {
		if kind := p.Spec.ParamKind; kind != nil && strings.Contains(p.Name, s.namespace+".") {
			found++
			if kind.Kind != "Lease" {
				t.Errorf("after the migration, policy %s has a %s as parameter", p.Name, kind.Kind)
			}
		}
	}
	if found == 0 {
		t.Error("no policy with a parameter found")
	}
}
