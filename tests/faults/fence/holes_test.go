package fence

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/tests/cluster"
)

func TestFence_Subresources(t *testing.T) {
	t.Parallel()
	s := newStage(t, fence.Lease)
	a, b := s.pod("a"), s.pod("b")
	s.put(record{holder: "a", transitions: 3})
	if _, err := s.admin.AppsV1().Deployments(s.namespace).Create(t.Context(), deployment(), metav1.CreateOptions{}); err != nil {
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
	d := s.declaration()
	for what := range writes {
		group, resource, _ := strings.Cut(what, " ")
		d.Guards = append(d.Guards, fence.Guard{Group: group, Resources: []string{resource}, Namespaces: []string{s.namespace}})
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

func TestFence_NamespaceOfLock(t *testing.T) {
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
