package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/pkg/kube"
)

// allow sets the rules of the service account.
func allow(ctx context.Context, client kubernetes.Interface, options IdentityOptions) error {
	rbac := client.RbacV1()
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: options.ServiceAccount, Namespace: options.Namespace}}
	var errs []error
	if options.Rules != nil {
		meta := metav1.ObjectMeta{Name: options.ServiceAccount, Namespace: options.Namespace}
		errs = append(errs,
			Edit(ctx, rbac.Roles(meta.Namespace), &rbacv1.Role{ObjectMeta: meta}, func(role *rbacv1.Role) { role.Rules = options.Rules }),
			Edit(ctx, rbac.RoleBindings(meta.Namespace), &rbacv1.RoleBinding{ObjectMeta: meta}, func(binding *rbacv1.RoleBinding) {
				binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name}
				binding.Subjects = subjects
			}))
	}
	if options.ClusterRules != nil {
		meta := metav1.ObjectMeta{Name: options.Namespace + ":" + options.ServiceAccount}
		errs = append(errs,
			Edit(ctx, rbac.ClusterRoles(), &rbacv1.ClusterRole{ObjectMeta: meta}, func(role *rbacv1.ClusterRole) { role.Rules = options.ClusterRules }),
			Edit(ctx, rbac.ClusterRoleBindings(), &rbacv1.ClusterRoleBinding{ObjectMeta: meta}, func(binding *rbacv1.ClusterRoleBinding) {
				binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name}
				binding.Subjects = subjects
			}))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("set permissions: %w", err)
	}
	return nil
}

// awaitAllowed waits until the rules are in effect. The API server loads roles by a watch, so it may reject the first requests
// after their creation.
func (c *Cluster) awaitAllowed(ctx context.Context, options IdentityOptions) error {
	wanted := slices.Concat(options.Rules, options.ClusterRules)
	if len(wanted) == 0 {
		return nil
	}
	config := c.Admin() // a request of the identity itself would be in the audit log
	config.Impersonate.UserName = fmt.Sprintf("system:serviceaccount:%s:%s", options.Namespace, options.ServiceAccount)
	client, err := connect(config)
	if err != nil {
		return err
	}
	defer kube.CloseIdleConnections(client)
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: options.Namespace}}
	return c.api.await(ctx, "the rules of "+config.Impersonate.UserName+" are in effect", func(ctx context.Context) error {
		got, err := client.Kube().AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, review, metav1.CreateOptions{})
		if err == nil && !allows(got.Status, wanted) {
			return errors.New("the API server has not loaded them")
		}
		return err
	})
}

// allows reports whether the status contains each rule. The API server does not change the rules of roles.
func allows(status authorizationv1.SubjectRulesReviewStatus, rules []rbacv1.PolicyRule) bool {
	for _, rule := range rules {
		resources := slices.ContainsFunc(status.ResourceRules, func(r authorizationv1.ResourceRule) bool {
			return slices.Equal(r.Verbs, rule.Verbs) && slices.Equal(r.APIGroups, rule.APIGroups) &&
				slices.Equal(r.Resources, rule.Resources) && slices.Equal(r.ResourceNames, rule.ResourceNames)
		})
		if len(rule.Resources) > 0 && !resources {
			return false
		}
	}
	return true
}
