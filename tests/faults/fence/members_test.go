package fence

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/members"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/tests/cluster"
)

func patched(as kubernetes.Interface, t *testing.T, namespace, name, text string) error {
	t.Helper()
	_, err := as.CoordinationV1().Leases(namespace).Patch(t.Context(), name, mergePatch, []byte(text), metav1.PatchOptions{})
	return err
}

func TestFence_MemberLeases(t *testing.T) {
	t.Parallel()
	s := newStage(t, fence.Lease)
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
	first := s.publish(t, one, "pilot-1")
	second := s.publish(t, two, "pilot-2")
	const mine, theirs = members.NamePrefix + "pilot-1", members.NamePrefix + "pilot-2"
	const seize = `{"spec":{"holderIdentity":"pilot-1"}}`
	create := func(l *coordinationv1.Lease) error {
		_, err := one.CoordinationV1().Leases(s.namespace).Create(t.Context(), l, metav1.CreateOptions{})
		return err
	}
	remove := func(name string) error {
		return one.CoordinationV1().Leases(s.namespace).Delete(t.Context(), name, metav1.DeleteOptions{})
	}
	refused := map[string]func() error{
		"another's member":           func() error { return patched(one, t, s.namespace, theirs, seize) },
		"a member without a pod":     func() error { return create(named(members.NamePrefix+"pilot-3", "pilot-3")) },
		"one's own, for another":     func() error { return patched(one, t, s.namespace, mine, `{"spec":{"holderIdentity":"pilot-2"}}`) },
		"deleting another's":         func() error { return remove(theirs) },
		"a Lease that is no lock":    func() error { return patched(one, t, s.namespace, "not-a-lock", seize) },
		"deleting it":                func() error { return remove("not-a-lock") },
		"deleting a lock":            func() error { return remove("another-lock") },
		"making a Lease of any name": func() error { return create(named("anything", "pilot-1")) },
	}
	eventually(t, "the policy is in force", func() bool { return apierrors.IsForbidden(refused["making a Lease of any name"]()) })
	for what, try := range refused {
		if err := try(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "a pod may write its own member Lease") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := patched(one, t, s.namespace, "another-lock", seize); err != nil {
		t.Errorf("a lock that it may update: %v", err)
	}
	if err := create(named(election, "")); err != nil {
		t.Errorf("making the lock: %v", err)
	}
	for _, end := range []func() string{first, second} {
		if said := end(); strings.Contains(said, fence.PolicyPrefix) {
			t.Errorf("the publisher logs\n%s", said)
		}
	}
	// The publisher deletes its Lease at the end, but only tries it for a short time.
	if err := remove(mine); err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("deleting one's own: %v", err)
	}
}

// publish lets a Pod publish until end, and waits until a reader sees the member.
func (s *stage) publish(t *testing.T, as kubernetes.Interface, pod string) (end func() (said string)) {
	t.Helper()
	object, err := s.admin.CoreV1().Pods(s.namespace).Get(t.Context(), pod, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var log harness.Log
	p, err := members.New(members.Config{
		Client: as, Namespace: s.namespace, Identity: pod, PodUID: object.UID, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		State: func() members.State {
			return members.State{Revision: "stable", Cluster: members.Local, Elections: []members.Election{{Name: election, Candidate: true, Warm: true, Fit: true}}}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	eventually(t, pod+" is published", func() bool {
		all, err := members.List(t.Context(), s.admin, s.namespace)
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(all, func(m members.Member) bool { return m.Identity == pod && m.PodUID == string(object.UID) })
	})
	return func() string {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		return log.String()
	}
}
