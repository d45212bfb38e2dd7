package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// allow sets the rules of the service account.
func allow(ctx context.Context, client kubernetes.Interface, options IdentityOptions) error {
	rbac := client.RbacV1()
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: options.ServiceAccount, Namespace: options.Namespace}}
	if options.Rules != nil {
		meta := metav1.ObjectMeta{Name: options.ServiceAccount, Namespace: options.Namespace}
		err := Edit(ctx, rbac.Roles(meta.Namespace), &rbacv1.Role{ObjectMeta: meta}, func(role *rbacv1.Role) { role.Rules = options.Rules })
		if err != nil {
			return fmt.Errorf("set rules of role %s: %w", meta.Name, err)
		}
		err = Edit(ctx, rbac.RoleBindings(meta.Namespace), &rbacv1.RoleBinding{ObjectMeta: meta}, func(binding *rbacv1.RoleBinding) {
			binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name}
			binding.Subjects = subjects
		})
		if err != nil {
			return fmt.Errorf("bind role %s: %w", meta.Name, err)
		}
	}
	if options.ClusterRules != nil {
		meta := metav1.ObjectMeta{Name: options.Namespace + ":" + options.ServiceAccount}
		err := Edit(ctx, rbac.ClusterRoles(), &rbacv1.ClusterRole{ObjectMeta: meta}, func(role *rbacv1.ClusterRole) { role.Rules = options.ClusterRules })
		if err != nil {
			return fmt.Errorf("set rules of cluster role %s: %w", meta.Name, err)
		}
		err = Edit(ctx, rbac.ClusterRoleBindings(), &rbacv1.ClusterRoleBinding{ObjectMeta: meta}, func(binding *rbacv1.ClusterRoleBinding) {
			binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name}
			binding.Subjects = subjects
		})
		if err != nil {
			return fmt.Errorf("bind cluster role %s: %w", meta.Name, err)
		}
	}
	return nil
}

// rulesWithin limits the wait for the rules of an identity.
const rulesWithin = time.Minute

var errNotGranted = errors.New("the API server does not grant the rules of the identity")

// awaitRules waits until the API server grants the rules. It loads roles and bindings with a delay, and rejects requests
// until then.
func awaitRules(ctx context.Context, config *rest.Config, options IdentityOptions) error {
	wanted := slices.Concat(options.Rules, options.ClusterRules)
	if len(wanted) == 0 {
		return nil
	}
	client, done, err := NewClient(config)
	if err != nil {
		return err
	}
	defer done()
	question := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: options.Namespace}}
	last := errNotGranted
	err = wait.PollUntilContextTimeout(ctx, pollInterval, rulesWithin, true, func(ctx context.Context) (bool, error) {
		answer, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, question, metav1.CreateOptions{})
		if err != nil {
			last = err
			return false, nil
		}
		last = errNotGranted
		return !slices.ContainsFunc(wanted, func(rule rbacv1.PolicyRule) bool { return !granted(rule, answer.Status.ResourceRules) }), nil
	})
	if err != nil {
		return fmt.Errorf("wait for the rules of service account %s: %w (%w)", options.ServiceAccount, last, err)
	}
	return nil
}

// granted reports whether the rules contain a rule for resources. Other rules count as granted.
func granted(rule rbacv1.PolicyRule, rules []authorizationv1.ResourceRule) bool {
	want := authorizationv1.ResourceRule{Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames}
	return len(rule.Resources) == 0 || slices.ContainsFunc(rules, func(r authorizationv1.ResourceRule) bool {
		return equality.Semantic.DeepEqual(r, want)
	})
}
