package fence

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/tests/cluster"
)

func TestFence_AdmitsOnlyHolder(t *testing.T) {
	both(t, func(t *testing.T, kind record.Kind) {
		s := newStage(t, kind)
		a, b := s.guarded()
		s.refused("a write of another pod", s.write(b), "pod b is not the leader", "names a")
		s.refused("a token that is bound to no pod", s.write(s.unbound(account)), "unbound token")
		s.allowed("a write by another account, which RBAC checks", s.write(s.podOf("elsewhere", "other").Kube()))

		t.Log("a handover: the right to write goes with the record")
		s.put(content{holder: "b", transitions: 4})
		s.inEffect(b, a)
		t.Log("a release: no pod may write")
		s.put(content{transitions: 4})
		eventually(t, "b is refused", func() bool { return fence.IsRefusal(s.write(b)) })
		s.refused("a write without a holder", s.write(a), "has no holder")
		t.Log("a name that another's begins with")
		s.put(content{holder: "ab", transitions: 5})
		s.refused("a write of pod a while ab leads", s.write(a))
	})
}

// Candidates cannot delete guarded objects as a part of a collection. The policy rejects no other collection.
func TestFence_Collections(t *testing.T) {
	t.Parallel()
	s := newStage(t, record.Lease)
	a, _ := s.guarded()
	for _, name := range []string{guarded, "free"} {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"is": name}}}
		s.must(s.admin.CoreV1().ConfigMaps(s.namespace).Create(t.Context(), object, metav1.CreateOptions{}))
	}
	remove := func(as kubernetes.Interface, selector string) error {
		return as.CoreV1().ConfigMaps(s.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{DryRun: dryRun}, metav1.ListOptions{LabelSelector: selector})
	}
	s.refused("a guarded object, also by the leader", remove(a, "is="+guarded), "cannot be deleted as a collection")
	s.refused("a collection with a guarded object", remove(a, "is"), "cannot be deleted as a collection")
	s.allowed("a collection without one", remove(a, "is=free"))
	s.allowed("a collection of another account", remove(s.podOf("o", "other").Kube(), "is="+guarded))
}

// unbound is a client with a token of a service account alone.
func (s *stage) unbound(account string) kubernetes.Interface {
	s.t.Helper()
	granted, err := s.admin.CoreV1().ServiceAccounts(s.namespace).CreateToken(s.t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	harness.Must(s.t, err)
	config := rest.AnonymousClientConfig(s.cluster.Admin())
	config.BearerToken = granted.Status.Token
	return cluster.ClientFor(s.t, config).Kube()
}

// Without a namespace, the lock would be gone and all writes of the leader would be rejected.
func TestFence_NamespaceOfLock(t *testing.T) {
	t.Parallel()
	s := newStage(t, record.ConfigMap)
	s.guarded()
	remove := func() error {
		return s.admin.CoreV1().Namespaces().Delete(t.Context(), s.namespace, metav1.DeleteOptions{DryRun: dryRun})
	}
	s.refused("deleting the namespace of the lock", remove(), "pilot fence remove --set "+s.namespace)
	s.must(install.Remove(t.Context(), s.admin, s.set.Name))
	s.allowed("deleting it without the fence", remove())
}

// A control plane whose lock does not exist yet, or was deleted, does not stop the writers of the objects of others. Its own writes are
// rejected, because they have its label.
func TestFence_MissingLock_OwnObjects(t *testing.T) {
	both(t, func(t *testing.T, kind record.Kind) {
		s := newStage(t, kind)
		a, b, other := s.pod("a"), s.pod("b"), s.podOf("elsewhere", "other").Kube()
		d := s.declaration()
		d.Guards = []fence.Guard{{Resources: []string{"secrets"}, Labels: map[string]string{"managed": "all"}, Own: map[string]string{"of": "mine"}}}
		s.put(content{holder: "a", transitions: 3})
		s.install(d)
		write := func(as kubernetes.Interface, of string) error {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Labels: map[string]string{"managed": "all", "of": of}}}
			_, err := as.CoreV1().Secrets(s.namespace).Create(t.Context(), secret, metav1.CreateOptions{DryRun: dryRun})
			return err
		}
		for _, of := range []string{"mine", "another"} {
			eventually(t, "only the holder writes objects of "+of, func() bool { return fence.IsRefusal(write(b, of)) && write(a, of) == nil })
		}
		harness.Must(t, s.delete(s.admin))
		eventually(t, "own objects are guarded", func() bool { return fence.IsRefusal(write(a, "mine")) })
		s.refused("a write of another candidate", write(b, "mine"), "no params found")
		s.allowed("a write of an object of others", write(other, "another"))

		t.Log("the first acquisition needs no prepared lock")
		s.allowed("creating the lock", s.create(b, content{holder: "b"}))
		eventually(t, "the new holder writes", func() bool { return write(b, "mine") == nil && fence.IsRefusal(write(a, "mine")) })
		s.refused("an object of others", write(a, "another"), "pod a is not the leader")
	})
}
