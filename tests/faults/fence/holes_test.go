package fence

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	"incumbent.dev/incumbent/tests/cluster"
)

// A write of some subresources is judged by an object of their own, which has no labels: a guard
// with labels never sees it. Such a declaration is refused, and what the error advises guards it.
func TestFenceRefusesLabelsForWhatHasNone(t *testing.T) {
	s := newStage(t, fence.Lease)
	a, b := s.pod("a"), s.pod("b")
	s.put(record{holder: "a", transitions: 3})
	labels := map[string]string{"app": "guarded"}
	labelled := deployment()
	labelled.Labels = labels
	if _, err := s.admin.AppsV1().Deployments(s.namespace).Create(t.Context(), labelled, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.admin.CoreV1().Pods(s.namespace).Patch(t.Context(), "a", mergePatch, []byte(`{"metadata":{"labels":{"app":"guarded"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	dry := []string{metav1.DryRunAll}
	writes := map[string]func(as kubernetes.Interface) error{
		"apps deployments/scale": func(as kubernetes.Interface) error {
			_, err := as.AppsV1().Deployments(s.namespace).Patch(t.Context(), guarded, mergePatch, []byte(`{"spec":{"replicas":7}}`), metav1.PatchOptions{DryRun: dry}, "scale")
			return err
		},
		" pods/eviction": func(as kubernetes.Interface) error {
			return as.CoreV1().Pods(s.namespace).EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "a"}, DeleteOptions: &metav1.DeleteOptions{DryRun: dry}})
		},
		" pods/binding": func(as kubernetes.Interface) error {
			return as.CoreV1().Pods(s.namespace).Bind(t.Context(), &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Target: corev1.ObjectReference{Name: "n"}}, metav1.CreateOptions{DryRun: dry})
		},
	}
	unguarded, byNamespace := s.declaration(), s.declaration()
	for what := range writes {
		group, resource, _ := strings.Cut(what, " ")
		d := s.declaration()
		d.Guards = []fence.Guard{{Group: group, Resources: []string{resource}, Labels: labels}}
		_, err := fence.Render(s.namespace, d)
		if err == nil {
			unguarded.Guards = append(unguarded.Guards, d.Guards...)
			continue
		}
		for _, word := range []string{resource, "without labels", "names or namespaces"} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %q is missing in %v", what, word, err)
			}
		}
		byNamespace.Guards = append(byNamespace.Guards, fence.Guard{Group: group, Resources: []string{resource}, Namespaces: []string{s.namespace}})
	}
	d := byNamespace
	if len(unguarded.Guards) > 1 {
		d = unguarded
	}
	s.install(d)
	s.stands(a, b)
	for what, write := range writes {
		s.refused(what+" by a follower", write(b))
		if err := write(a); fence.IsRefusal(err) {
			t.Errorf("%s by the leader: %v", what, err)
		}
	}
	if err := b.CoreV1().RESTClient().Post().Namespace(s.namespace).Resource("bindings").VersionedParams(&metav1.CreateOptions{DryRun: dry}, metav1.ParameterCodec).
		Body(&corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Target: corev1.ObjectReference{Name: "n"}}).Do(t.Context()).Error(); !fence.IsRefusal(err) {
		t.Errorf("a Binding made by its other resource was not refused: %v", err)
	}
}

// Without the lock everyone's guarded writes are refused, deletions too, so that a namespace whose
// lock goes first can never be emptied. Its deletion is refused, with the way out.
func TestFenceKeepsTheLocksNamespace(t *testing.T) {
	t.Parallel()
	c := startCluster(t, cluster.Options{})
	s := stageOn(t, c, fence.ConfigMap)
	a, b := s.pod("a"), s.pod("b")
	s.put(record{holder: "a", transitions: 3})
	d := s.declaration()
	d.Guards = append(d.Guards, fence.Guard{Resources: []string{"secrets"}, Labels: map[string]string{"managed": "yes"}})
	if _, err := s.admin.CoreV1().Secrets(s.namespace).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Name: "managed", Labels: map[string]string{"managed": "yes"}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.install(d)
	s.stands(a, b)
	err := s.admin.CoreV1().Namespaces().Delete(t.Context(), s.namespace, metav1.DeleteOptions{})
	s.refused("deleting the lock's namespace", err, "pilot fence remove --set "+s.namespace)
	if _, err := install.Remove(t.Context(), s.admin, s.set.Name); err != nil {
		t.Fatal(err)
	}
	s.allowed("deleting it without the fence", s.admin.CoreV1().Namespaces().Delete(t.Context(), s.namespace, metav1.DeleteOptions{}))
	eventually(t, "the namespace is gone", func() bool {
		_, err := s.admin.CoreV1().Namespaces().Get(t.Context(), s.namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// Two sets that name one lock: the second is told, and changes nothing.
func TestFenceOfAnotherSetIsNotTakenOver(t *testing.T) {
	s := newStage(t, fence.Lease)
	a, b := s.pod("a"), s.podOf("b", "second").Kube()
	s.put(record{holder: "a", transitions: 3})
	s.install(s.declaration())
	follower := s.pod("c")
	s.stands(a, follower)
	other := s.declaration()
	other.ServiceAccounts = []string{s.namespace + "/second"}
	set, err := fence.Render(s.namespace+"-2", other)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := install.Remove(cleanup(t), s.admin, set.Name); err != nil {
			t.Error(err)
		}
	})
	before := s.installed()
	if changes, err := install.Apply(t.Context(), s.admin, set); err == nil || !strings.Contains(err.Error(), `guarded by the fence "`+s.namespace+`"`) || !strings.Contains(err.Error(), "--take-over") {
		t.Errorf("a second set for the same lock: %v, %v", changes, err)
	}
	if after := s.installed(); strings.Join(after, " ") != strings.Join(before, " ") {
		t.Errorf("of the first set there is left\n%v, of\n%v", after, before)
	}
	s.allowed("a write of the first set's leader", s.write(a))
	s.refused("a write of its follower", s.write(follower))

	t.Log("a mistyped service account of the same set")
	mistyped := s.declaration()
	mistyped.ServiceAccounts = []string{s.namespace + "/pilto"}
	wrong, err := fence.Render(s.namespace, mistyped)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := install.Apply(t.Context(), s.admin, wrong); err == nil || !strings.Contains(err.Error(), "pilto") {
		t.Errorf("a mistyped service account: %v", err)
	}
	if after := s.installed(); strings.Join(after, " ") != strings.Join(before, " ") {
		t.Errorf("after a mistyped account there is left\n%v, of\n%v", after, before)
	}
	both := s.declaration()
	both.ServiceAccounts = append(both.ServiceAccounts, s.namespace+"/second")
	if more, err := fence.Render(s.namespace, both); err != nil {
		t.Error(err)
	} else if _, err := install.Apply(t.Context(), s.admin, more); err != nil {
		t.Errorf("one account more: %v", err)
	}

	t.Log("taken over, as it was said so")
	if _, err := install.Apply(t.Context(), s.admin, set, install.Options{TakeOver: true}); err != nil {
		t.Fatal(err)
	}
	if left := s.installed(); len(left) != 0 {
		t.Errorf("of the first set there is left %v", left)
	}
	s.refused("a write of the second set's follower", s.write(b))
	eventually(t, "an account that is not declared any more is not judged", func() bool { return s.write(follower) == nil })
}

// What lost its label is found by its name.
func TestFenceWithoutItsLabels(t *testing.T) {
	s := newStage(t, fence.Lease)
	_, b := s.guarded()
	name := s.set.Work[0].Name()
	strip := []byte(`{"metadata":{"labels":null}}`)
	api := s.admin.AdmissionregistrationV1()
	if _, err := api.ValidatingAdmissionPolicies().Patch(t.Context(), name, mergePatch, strip, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.ValidatingAdmissionPolicyBindings().Patch(t.Context(), name, mergePatch, strip, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	findings, err := install.Verify(t.Context(), s.cluster.Admin(), s.set, s.declaration())
	if err != nil {
		t.Fatal(err)
	}
	if err := install.Judge(findings, install.Judging{}); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("verify says of a policy without its label: %v", err)
	}
	if _, err := install.Remove(t.Context(), s.admin, s.set.Name); err != nil {
		t.Fatal(err)
	}
	if _, err := api.ValidatingAdmissionPolicyBindings().Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a binding without its label after the removal: %v", err)
	}
	s.allowed("a write without a fence", s.write(b))
}

// Several administrators repair what somebody breaks, at once.
func TestFenceIsRepairedByManyAtOnce(t *testing.T) {
	s := newStage(t, fence.Lease)
	s.put(record{holder: "a", transitions: 3})
	s.install(s.declaration())
	name := s.set.Work[0].Name()
	api := s.admin.AdmissionregistrationV1()
	for range 2 {
		extra := `[{"op":"add","path":"/spec/matchConstraints/excludeResourceRules","value":[{"apiGroups":[""],"apiVersions":["*"],"operations":["*"],"resources":["configmaps"]}]}]`
		if _, err := api.ValidatingAdmissionPolicies().Patch(t.Context(), name, jsonPatch, []byte(extra), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		errs := make(chan error)
		const repairers = 4
		for range repairers {
			go func() {
				_, err := install.Apply(t.Context(), s.admin, s.set)
				errs <- err
			}()
		}
		for range repairers {
			if err := <-errs; err != nil {
				t.Errorf("a repair beside others: %v", err)
			}
		}
	}
	if p, err := api.ValidatingAdmissionPolicies().Get(t.Context(), name, metav1.GetOptions{}); err != nil || len(p.Spec.MatchConstraints.ExcludeResourceRules) != len(s.set.Work[0].Policy.Spec.MatchConstraints.ExcludeResourceRules) {
		t.Errorf("repaired to %+v, %v", p.Spec.MatchConstraints, err)
	}
}
