package fence

import (
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/members"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/tests/cluster"
)

func patched(as kubernetes.Interface, t *testing.T, namespace, name, text string) error {
	t.Helper()
	_, err := as.CoordinationV1().Leases(namespace).Patch(t.Context(), name, mergePatch, []byte(text), metav1.PatchOptions{})
	return err
}

func TestFence_MemberLeases(t *testing.T) {
	t.Parallel()
	s := newStage(t, record.Lease)
	rule := func(verbs []string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: names, Verbs: verbs}
	}
	// Permissions that RBAC can grant: no name limits the first rule.
	rules := []rbacv1.PolicyRule{rule([]string{"create", "patch", "delete", "get"}), rule([]string{"update"}, election, "another-lock")}
	as := func(pod string) kubernetes.Interface {
		return cluster.ClientFor(t, s.cluster.Identity(t, cluster.IdentityOptions{Namespace: s.namespace, PodName: pod, ServiceAccount: account, Rules: rules})).Kube()
	}
	one, two := as("pilot-1"), as("pilot-2")
	named := func(name, holder string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}
	}
	leases := s.admin.CoordinationV1().Leases(s.namespace)
	for _, name := range []string{"not-a-lock", "another-lock"} {
		s.must(leases.Create(t.Context(), named(name, "somebody"), metav1.CreateOptions{}))
	}
	d := s.declaration()
	d.Members = true
	s.install(d)
	const mine, theirs = members.NamePrefix + "pilot-1", members.NamePrefix + "pilot-2"
	const seize = `{"spec":{"holderIdentity":"pilot-1"}}`
	create := func(as kubernetes.Interface, l *coordinationv1.Lease) error {
		_, err := as.CoordinationV1().Leases(s.namespace).Create(t.Context(), l, metav1.CreateOptions{})
		return err
	}
	remove := func(name string) error {
		return one.CoordinationV1().Leases(s.namespace).Delete(t.Context(), name, metav1.DeleteOptions{})
	}
	refused := map[string]func() error{
		"another's member":           func() error { return patched(one, t, s.namespace, theirs, seize) },
		"a member without a pod":     func() error { return create(one, named(members.NamePrefix+"pilot-3", "pilot-3")) },
		"one's own, for another":     func() error { return patched(one, t, s.namespace, mine, `{"spec":{"holderIdentity":"pilot-2"}}`) },
		"deleting another's":         func() error { return remove(theirs) },
		"a Lease that is no lock":    func() error { return patched(one, t, s.namespace, "not-a-lock", seize) },
		"deleting it":                func() error { return remove("not-a-lock") },
		"deleting a lock":            func() error { return remove("another-lock") },
		"making a Lease of any name": func() error { return create(one, named("anything", "pilot-1")) },
	}
	eventually(t, "the policy is in force", func() bool { return apierrors.IsForbidden(refused["making a Lease of any name"]()) })
	s.allowed("a Lease of its own", create(one, named(mine, "pilot-1")))
	s.allowed("a Lease of the other pod", create(two, named(theirs, "pilot-2")))
	s.allowed("renewing one's own", patched(one, t, s.namespace, mine, seize))
	for what, try := range refused {
		if err := try(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "a pod may write its own member Lease") {
			t.Errorf("%s: %v", what, err)
		}
	}
	s.allowed("another account", patched(s.podOf("o", "other").Kube(), t, s.namespace, "not-a-lock", seize))
	if err := patched(one, t, s.namespace, "another-lock", seize); err != nil {
		t.Errorf("a lock that it may update: %v", err)
	}
	if err := create(one, named(election, "")); err != nil {
		t.Errorf("making the lock: %v", err)
	}
	if err := remove(mine); err != nil {
		t.Errorf("deleting one's own: %v", err)
	}
}
