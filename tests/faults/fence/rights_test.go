package fence

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/access"
	"incumbent.dev/incumbent/internal/testutil/golden"
	"incumbent.dev/incumbent/tests/cluster"
)

var dryRun = []string{metav1.DryRunAll}

// attempt is a dry-run write.
type attempt func(ctx context.Context, as kubernetes.Interface) error

// change changes the lock of the stage as a dry run.
func (s *stage) change(change func(*coordinationv1.Lease)) attempt {
	return func(ctx context.Context, as kubernetes.Interface) error {
		lease, err := s.admin.CoordinationV1().Leases(s.namespace).Get(ctx, election, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(lease)
		_, err = as.CoordinationV1().Leases(s.namespace).Update(ctx, lease, metav1.UpdateOptions{DryRun: dryRun})
		return err
	}
}

func (s *stage) hold(holder string, transitions int32) attempt {
	return s.change(func(l *coordinationv1.Lease) {
		l.Spec.HolderIdentity = &holder
		l.Spec.LeaseTransitions = &transitions
		l.Spec.RenewTime = &metav1.MicroTime{Time: epoch.Add(second)}
	})
}

func (s *stage) annotateWith(keys ...string) attempt {
	return func(ctx context.Context, as kubernetes.Interface) (err error) {
		for i, key := range keys {
			last := err
			err = s.change(func(l *coordinationv1.Lease) { metav1.SetMetaDataAnnotation(&l.ObjectMeta, key, "x") })(ctx, as)
			if i > 0 && outcome(last) != outcome(err) {
				return fmt.Errorf("annotations are judged differently: %w, then %s: %w", last, key, err)
			}
		}
		return err
	}
}

// outcome is a cell of the table.
func outcome(err error) string {
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		return "yes"
	case fence.IsRefusal(err):
		return "fence"
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return "RBAC"
	}
	return err.Error()
}

// TestRights_Table tries who may do what to a lock, with the permissions of the chart, and compares the result with
// the table in docs/safety.md.
func TestRights_Table(t *testing.T) {
	t.Parallel()
	s := newStage(t, record.Lease)
	s.put(content{holder: "a", transitions: 3})
	target := deployment()
	s.must(s.admin.AppsV1().Deployments(s.namespace).Create(t.Context(), target, metav1.CreateOptions{}))
	declared := s.declaration()
	declared.Guards = append(declared.Guards, fence.Guard{Group: "apps", Resources: []string{"deployments"}, Labels: target.Labels, Namespaces: []string{s.namespace}})
	s.install(declared)
	s.inEffect(s.pod("a"), s.pod("b"))

	owned := access.Of(t, "defaults", s.namespace, "stable", election)
	as := func(pod, account string, rules []rbacv1.PolicyRule) *rest.Config {
		return s.cluster.Identity(t, cluster.IdentityOptions{Namespace: s.namespace, PodName: pod, ServiceAccount: account, Rules: rules})
	}
	all := append(rights(), rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"deployments/status"}, Verbs: []string{"patch"}})
	everything := append(owned.Namespace, all...)
	anonymous := rest.AnonymousClientConfig(s.cluster.Admin())
	leader := as("a2", account, everything)
	actors := []struct {
		name   string
		config *rest.Config
	}{
		{"no token", anonymous},
		{"pod of another account", as("o2", "other-account", all)},
		{"follower", as("b2", account, everything)},
		{"leader", leader},
		{"operator", as("op", "operator-account", owned.Operator)},
		{"coordinator", as("co2", "coordinator", all)},
		{"user with Gateways and ConfigMaps", as("u", "user", []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"*"}},
			{APIGroups: []string{"gateway.networking.k8s.io"}, Resources: []string{"gateways"}, Verbs: []string{"*"}},
		})},
		{"administrator", s.cluster.Admin()},
	}
	s.put(content{holder: "a2", transitions: 3})
	eventually(t, "the API server has seen the leader", func() bool {
		return s.patchTarget()(t.Context(), cluster.ClientFor(t, leader).Kube()) == nil
	})
	own := map[string]string{"follower": "b2", "leader": "a2", "pod of another account": "o2"}
	actions := []struct {
		name string
		do   func(name string) attempt
	}{
		{"renew the lease of the leader", func(string) attempt { return s.hold("a2", 3) }},
		{"acquire for itself", func(name string) attempt {
			return s.hold(cmp.Or(own[name], "x"), 4)
		}},
		{"write a candidate as holder", func(string) attempt { return s.hold("c", 4) }},
		{"release", func(string) attempt { return s.hold("", 3) }},
		{"annotations `incumbent.dev/*`", func(string) attempt {
			return s.annotateWith(record.MarkerAnnotation, record.HandoverRequestAnnotation, record.NominatedAnnotation, record.HoldAnnotation,
				record.StrategyAnnotation, record.PreferredHolderAnnotation)
		}},
		{"other annotations and labels", func(string) attempt { return s.annotateWith("example.com/x") }},
		{"delete the lock", func(string) attempt {
			return func(ctx context.Context, c kubernetes.Interface) error {
				return c.CoordinationV1().Leases(s.namespace).Delete(ctx, election, metav1.DeleteOptions{DryRun: dryRun})
			}
		}},
		{"delete all Leases of the namespace", func(string) attempt {
			return func(ctx context.Context, c kubernetes.Interface) error {
				return c.CoordinationV1().Leases(s.namespace).DeleteCollection(ctx, metav1.DeleteOptions{DryRun: dryRun}, metav1.ListOptions{})
			}
		}},
		{"write a guarded object", func(string) attempt { return s.patchTarget() }},
		{"write its `/status`", func(string) attempt { return s.patchTarget("status") }},
	}
	var table strings.Builder
	table.WriteString("| |")
	for _, actor := range actors {
		table.WriteString(" " + actor.name + " |")
	}
	table.WriteString("\n|" + strings.Repeat(" --- |", len(actors)+1) + "\n")
	for _, action := range actions {
		table.WriteString("| " + action.name + " |")
		for _, actor := range actors {
			client := cluster.ClientFor(t, actor.config).Kube()
			table.WriteString(" " + outcome(action.do(actor.name)(t.Context(), client)) + " |")
		}
		table.WriteString("\n")
	}
	golden.Section(t, "../../../docs/safety.md", "<!-- begin of the table of rights -->\n\n", "\n<!-- end of the table of rights -->", table.String())
}

func (s *stage) patchTarget(subresource ...string) attempt {
	return func(ctx context.Context, as kubernetes.Interface) error {
		_, err := as.AppsV1().Deployments(s.namespace).Patch(ctx, guarded, mergePatch, []byte(`{"metadata":{"annotations":{"x":"y"}}}`),
			metav1.PatchOptions{DryRun: dryRun}, subresource...)
		return err
	}
}
