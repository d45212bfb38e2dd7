package fence

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pilot/leaderelection/fence"
)

func (s *stage) installed() []string {
	s.t.Helper()
	options := metav1.ListOptions{LabelSelector: fence.SetLabel + "=" + s.namespace}
	policies, err := s.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(s.t.Context(), options)
	if err != nil {
		s.t.Fatal(err)
	}
	bindings, err := s.admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().List(s.t.Context(), options)
	if err != nil {
		s.t.Fatal(err)
	}
	var names []string
	for _, p := range policies.Items {
		names = append(names, p.Name)
	}
	for _, b := range bindings.Items {
		names = append(names, b.Name)
	}
	return names
}

func TestFenceIsInstalledAgainAndAgain(t *testing.T) {
	s := newStage(t, fence.Lease)
	a, b := s.guarded()
	count := func(changes []install.Change, verb string) (n int) {
		for _, c := range changes {
			if c.Verb == verb {
				n++
			}
		}
		return n
	}
	again, err := install.Apply(t.Context(), s.admin, s.set)
	if err != nil || count(again, "unchanged") != len(again) || len(again) != 2*len(s.set.All()) {
		t.Errorf("again: %v, %v", again, err)
	}

	t.Log("somebody softens a binding")
	name := s.set.Work[0].Name()
	soft := `{"spec":{"validationActions":["Audit"]}}`
	bindings := s.admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	if _, err := bindings.Patch(t.Context(), name, mergePatch, []byte(soft), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the fence is open", func() bool { return s.write(b) == nil })
	findings, err := install.Verify(t.Context(), s.cluster.Admin(), s.set, s.declaration())
	if err != nil {
		t.Fatal(err)
	}
	if err := install.Judge(findings, install.Judging{}); err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicyBinding is another") || !strings.Contains(err.Error(), "a pod that does not lead is refused: create was admitted") {
		t.Errorf("verify says %v", err)
	}
	repaired, err := install.Apply(t.Context(), s.admin, s.set)
	if err != nil || count(repaired, "applied") != 1 {
		t.Errorf("repair: %v, %v", repaired, err)
	}
	s.stands(a, b)
	if b, err := bindings.Get(t.Context(), name, metav1.GetOptions{}); err != nil || len(b.Spec.ValidationActions) != 1 || b.Spec.ValidationActions[0] != admissionv1.Deny {
		t.Errorf("repaired to %v, %v", b, err)
	}

	t.Log("fewer guards: what is left over goes")
	less := s.declaration()
	less.Guards, less.WithoutLockGuard = less.Guards[:1], true
	less.Guards[0].Verbs = []string{"create"}
	set, err := fence.Render(s.namespace, less)
	if err != nil {
		t.Fatal(err)
	}
	changes, err := install.Apply(t.Context(), s.admin, set)
	if err != nil || count(changes, "removed") != 8 {
		t.Errorf("less: %v, %v", changes, err)
	}
	if got := s.installed(); len(got) != 4 {
		t.Errorf("installed are %v", got)
	}
	t.Log("and away")
	if changes, err := install.Remove(t.Context(), s.admin, s.namespace); err != nil || len(changes) != 4 || changes[0].Kind != "ValidatingAdmissionPolicyBinding" {
		t.Errorf("removed %v, %v", changes, err)
	}
	if got := s.installed(); len(got) != 0 {
		t.Errorf("left are %v", got)
	}
	if _, err := bindings.Get(t.Context(), s.set.Permanent[0].Name(), metav1.GetOptions{}); err != nil {
		t.Errorf("the keeper is gone: %v", err)
	}
	eventually(t, "everyone may write", func() bool { return s.write(b) == nil })
}

func TestFenceVerifiesInWords(t *testing.T) {
	s := newStage(t, fence.ConfigMap)
	s.pod("a")
	config := install.Config{RESTConfig: s.cluster.Admin(), Namespace: s.namespace, Elections: bootstrap.FencedElections(bootstrap.Config{DisableGatewayAPI: true}), ServiceAccounts: []string{account}, Wait: soon}
	t.Cleanup(func() { s.quietly(config) })
	var out strings.Builder
	if err := config.Verify(t.Context(), &out); err == nil || !strings.Contains(out.String(), "ValidatingAdmissionPolicy is missing") ||
		!strings.Contains(out.String(), "`pilot fence install` puts it right") || !strings.Contains(out.String(), "FAILS") {
		t.Errorf("without a fence: %v\n%s", err, &out)
	}
	out.Reset()
	if err := config.Install(t.Context(), &out); err != nil || !strings.Contains(out.String(), "applied ValidatingAdmissionPolicyBinding incumbent-fence.") {
		t.Fatalf("%v\n%s", err, &out)
	}
	if !strings.Contains(out.String(), "there is no such lock") {
		t.Errorf("nobody has led yet:\n%s", &out)
	}
	lock := record{holder: "a", transitions: 3}.configMap()
	lock.Name = "istio-namespace-controller-election"
	if _, err := s.admin.CoreV1().ConfigMaps(s.namespace).Create(t.Context(), lock, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the API server knows the lock", func() bool {
		out.Reset()
		return config.Verify(t.Context(), &out) == nil && strings.Contains(out.String(), "holds    configmap "+s.namespace+"/istio-namespace-controller-election guards configmaps for "+s.namespace+"/pilot: pod a, which leads, may write")
	})
	for _, want := range []string{"pod incumbent-fence-nobody is not the leader", "bound to no pod", "is installed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "FAILS") || strings.Contains(out.String(), "unclear") {
		t.Errorf("got\n%s", &out)
	}
	out.Reset()
	if err := config.Remove(t.Context(), &out); err != nil || !strings.Contains(out.String(), "removed ValidatingAdmissionPolicy ") {
		t.Errorf("%v\n%s", err, &out)
	}
	out.Reset()
	if err := config.Remove(t.Context(), &out); err != nil || !strings.Contains(out.String(), " is not installed") {
		t.Errorf("again: %v\n%s", err, &out)
	}
}

// quietly removes what a failed test left.
func (s *stage) quietly(config install.Config) {
	if _, err := install.Remove(cleanup(s.t), s.admin, config.Namespace); err != nil {
		s.t.Error(err)
	}
}
