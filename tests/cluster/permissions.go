package cluster

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
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
