package fence

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/tests/cluster"
)

func TestFence_AdmitsOnlyHolder(t *testing.T) {
	both(t, func(t *testing.T, kind fence.LockKind) {
		s := newStage(t, kind)
		a, b := s.guarded()
		s.refused("a write of another pod", s.write(b), "pod b is not the leader", "names a")
		s.refused("a token that is bound to no pod", s.write(s.unbound(account)), "unbound token")
		s.allowed("a write by another account, which RBAC checks", s.write(s.podOf("elsewhere", "other").Kube()))

		t.Log("a handover: the right to write goes with the record")
		s.put(record{holder: "b", transitions: 4})
		s.stands(b, a)
		t.Log("a release: no pod may write")
		s.put(record{transitions: 4})
		eventually(t, "b is refused", func() bool { return fence.IsRefusal(s.write(b)) })
		s.refused("a write without a holder", s.write(a), "has no holder")
		t.Log("a name that another's begins with")
		s.put(record{holder: "ab", transitions: 5})
		s.refused("a write of pod a while ab leads", s.write(a))
	})
}

// unbound is a client with a token of a service account alone.
func (s *stage) unbound(account string) kubernetes.Interface {
	s.t.Helper()
	granted, err := s.admin.CoreV1().ServiceAccounts(s.namespace).CreateToken(s.t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(s.cluster.Admin())
	config.BearerToken = granted.Status.Token
	return cluster.ClientFor(s.t, config).Kube()
}

func TestFence_EveryVerb(t *testing.T) {
	t.Parallel()
	s := newStage(t, fence.Lease)
	d := s.declaration()
	d.Guards = append(d.Guards,
		fence.Guard{Group: "apps", Resources: []string{"deployments/scale"}, Names: []string{guarded}, Namespaces: []string{s.namespace}},
		fence.Guard{Resources: []string{"pods/exec"}, Verbs: []string{"connect"}, Namespaces: []string{s.namespace}},
		fence.Guard{Resources: []string{"secrets"}, Labels: map[string]string{"managed": "yes"}, Namespaces: []string{s.namespace}})
	a, b := s.pod("a"), s.pod("b")
	s.put(record{holder: "a", transitions: 3})
	maps, dry := s.admin.CoreV1().ConfigMaps(s.namespace), dryRun
	for _, name := range []string{guarded, "free"} {
		s.must(maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))
	}
	s.must(s.admin.AppsV1().Deployments(s.namespace).Create(t.Context(), deployment(), metav1.CreateOptions{}))
	secret := func(name string, labels map[string]string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
	managed := map[string]string{"managed": "yes"}
	s.must(s.admin.CoreV1().Secrets(s.namespace).Create(t.Context(), secret("managed", managed), metav1.CreateOptions{}))
	s.install(d)
	s.stands(a, b)

	for what, write := range map[string]func(as kubernetes.Interface) error{
		"create": func(as kubernetes.Interface) error {
			_, err := as.CoreV1().ConfigMaps(s.namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: guarded}}, metav1.CreateOptions{DryRun: dry})
			return exists(err)
		},
		"update": func(as kubernetes.Interface) error {
			_, err := as.CoreV1().ConfigMaps(s.namespace).Update(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: guarded}}, metav1.UpdateOptions{DryRun: dry})
			return err
		},
		"patch": func(as kubernetes.Interface) error {
			_, err := as.CoreV1().ConfigMaps(s.namespace).Patch(t.Context(), guarded, mergePatch, []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{DryRun: dry})
			return err
		},
		"server-side apply": func(as kubernetes.Interface) error {
			body := []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"guarded"},"data":{"a":"b"}}`)
			_, err := as.CoreV1().ConfigMaps(s.namespace).Patch(t.Context(), guarded, applyPatch, body, metav1.PatchOptions{DryRun: dry, FieldManager: "t"})
			return err
		},
		"delete": func(as kubernetes.Interface) error {
			return as.CoreV1().ConfigMaps(s.namespace).Delete(t.Context(), guarded, metav1.DeleteOptions{DryRun: dry})
		},
		"scale": func(as kubernetes.Interface) error {
			_, err := as.AppsV1().Deployments(s.namespace).Patch(t.Context(), guarded, mergePatch, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{DryRun: dry}, "scale")
			return err
		},
		"create by label": func(as kubernetes.Interface) error {
			_, err := as.CoreV1().Secrets(s.namespace).Create(t.Context(), secret("new", managed), metav1.CreateOptions{DryRun: dry})
			return err
		},
		"taking the label away": func(as kubernetes.Interface) error {
			_, err := as.CoreV1().Secrets(s.namespace).Patch(t.Context(), "managed", mergePatch, []byte(`{"metadata":{"labels":null}}`), metav1.PatchOptions{DryRun: dry})
			return err
		},
		"deleting the labelled": func(as kubernetes.Interface) error {
			return as.CoreV1().Secrets(s.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{DryRun: dry}, metav1.ListOptions{})
		},
	} {
		s.allowed(what+" by the holder", write(a))
		s.refused(what+" by another", write(b), "pod b is not the leader")
	}
	t.Log("exec is judged before it is tried")
	s.refused("exec by another", exec(t, b, s.namespace))
	if err := exec(t, a, s.namespace); fence.IsRefusal(err) {
		t.Errorf("exec by the holder: %v", err)
	}
	t.Log("collections, in which guarded objects have no name")
	for who, as := range map[string]kubernetes.Interface{"another": b, "the holder": a} {
		err := as.CoreV1().ConfigMaps(s.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{DryRun: dry}, metav1.ListOptions{})
		s.refused("deleting all by "+who, err, "delete them by name")
	}
	t.Log("unguarded objects and accounts judged")
	_, err := b.CoreV1().ConfigMaps(s.namespace).Patch(t.Context(), "free", mergePatch, []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{DryRun: dry})
	s.allowed("another ConfigMap", err)
	_, err = b.CoreV1().Secrets(s.namespace).Create(t.Context(), secret("plain", nil), metav1.CreateOptions{DryRun: dry})
	s.allowed("a Secret without the label", err)
	s.allowed("an operator's write", s.write(s.admin))
}

// exists takes the answer of a dry-run create that admission had nothing against.
func exists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func TestFence_MissingLock(t *testing.T) {
	both(t, func(t *testing.T, kind fence.LockKind) {
		s := newStage(t, kind)
		a, b := s.guarded()
		if err := s.delete(s.admin); err != nil {
			t.Fatal(err)
		}
		eventually(t, "everyone is refused", func() bool { return fence.IsRefusal(s.write(a)) })
		s.refused("a write of the former holder", s.write(a), "no params found")
		t.Log("a candidate may recreate the lock, and leads")
		s.allowed("recreating the lock", s.create(b, record{holder: "b"}))
		s.stands(b, a)
	})
}

// Without a namespace, the lock would be gone and all writes of the leader would be rejected.
func TestFence_NamespaceOfLock(t *testing.T) {
	t.Parallel()
	s := newStage(t, fence.ConfigMap)
	s.guarded()
	remove := func() error {
		return s.admin.CoreV1().Namespaces().Delete(t.Context(), s.namespace, metav1.DeleteOptions{DryRun: dryRun})
	}
	s.refused("deleting the namespace of the lock", remove(), "pilot fence remove --set "+s.namespace)
	s.must(install.Remove(t.Context(), s.admin, s.set.Name))
	s.allowed("deleting it without the fence", remove())
}
