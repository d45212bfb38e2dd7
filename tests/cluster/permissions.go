package cluster

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// allow sets the rules of the service account.
func allow(ctx context.Context, client kubernetes.Interface, options IdentityOptions) error {
	if options.Rules != nil {
		if err := allowInNamespace(ctx, client, options); err != nil {
			return err
		}
	}
	if options.ClusterRules != nil {
		return allowEverywhere(ctx, client, options)
	}
	return nil
}

// subjects returns the service account as the subject of a binding.
func subjects(options IdentityOptions) []rbacv1.Subject {
	return []rbacv1.Subject{{
		Kind: rbacv1.ServiceAccountKind, Name: options.ServiceAccount, Namespace: options.Namespace,
	}}
}

func allowInNamespace(ctx context.Context, client kubernetes.Interface, options IdentityOptions) error {
	meta := metav1.ObjectMeta{Name: options.ServiceAccount, Namespace: options.Namespace}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: options.Rules}
	roles := client.RbacV1().Roles(options.Namespace)
	_, err := roles.Create(ctx, role, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = roles.Update(ctx, role, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("set rules of role %s: %w", meta.Name, err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects:   subjects(options),
	}
	_, err = client.RbacV1().RoleBindings(options.Namespace).Create(ctx, binding, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("binding role %s: %w", meta.Name, err)
	}
	return nil
}

func allowEverywhere(ctx context.Context, client kubernetes.Interface, options IdentityOptions) error {
	meta := metav1.ObjectMeta{Name: options.Namespace + ":" + options.ServiceAccount}
	role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: options.ClusterRules}
	_, err := client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = client.RbacV1().ClusterRoles().Update(ctx, role, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("set rules of cluster role %s: %w", meta.Name, err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects:   subjects(options),
	}
	_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("bind cluster role %s: %w", meta.Name, err)
	}
	return nil
}
