package cluster_test

import (
	"context"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/tests/cluster"
)

// readConfigMaps is what the identities below may do.
var readConfigMaps = []rbacv1.PolicyRule{{
	APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list"},
}}

func whoami(ctx context.Context, client *kubernetes.Clientset) (authenticationv1.UserInfo, error) {
	review, err := client.AuthenticationV1().SelfSubjectReviews().
		Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	return review.Status.UserInfo, nil
}

func TestAnIdentityIsAPod(t *testing.T) {
	c := cluster.Shared(t)
	namespace := c.Namespace(t)
	config := c.Identity(t, cluster.IdentityOptions{Namespace: namespace, PodName: "a", ServiceAccount: "pilot"})
	user, err := whoami(t.Context(), clientFor(t, config))
	if err != nil {
		t.Fatal(err)
	}
	if user.Username != "system:serviceaccount:"+namespace+":pilot" {
		t.Errorf("its name is %s", user.Username)
	}
	if name := user.Extra["authentication.kubernetes.io/pod-name"]; !slices.Equal(name, []string{"a"}) {
		t.Errorf("its Pod is %q", name)
	}
}

// The API server remembers a token that it took for ten seconds, so this one is not shown to it
// before.
func TestTheTokenOfADeletedPodIsRefused(t *testing.T) {
	c := cluster.Shared(t)
	namespace := c.Namespace(t)
	client := clientFor(t, c.Identity(t, cluster.IdentityOptions{Namespace: namespace, PodName: "a"}))
	admin := clientFor(t, c.Admin())
	if err := admin.CoreV1().Pods(namespace).Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the API server refuses it", func(ctx context.Context) (bool, error) {
		_, err := whoami(ctx, client)
		return apierrors.IsUnauthorized(err), nil
	})
}

func TestAnIdentityMayDoNoMoreThanItsRules(t *testing.T) {
	c := cluster.Shared(t)
	namespace, other := c.Namespace(t), c.Namespace(t)
	client := clientFor(t, c.Identity(t, cluster.IdentityOptions{
		Namespace: namespace, PodName: "a", Rules: readConfigMaps,
	}))
	ctx := t.Context()
	if _, err := client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("it may not do what its rules allow: %v", err)
	}
	if _, err := client.CoreV1().ConfigMaps(other).List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("reading elsewhere: %v", err)
	}
	if err := client.CoreV1().ConfigMaps(namespace).Delete(ctx, "x", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("deleting: %v", err)
	}
	if _, err := client.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("reading secrets: %v", err)
	}
}

func TestReplicasMayShareAServiceAccount(t *testing.T) {
	c := cluster.Shared(t)
	namespace, other := c.Namespace(t), c.Namespace(t)
	for _, pod := range []string{"a", "b"} {
		client := clientFor(t, c.Identity(t, cluster.IdentityOptions{
			Namespace: namespace, PodName: pod, ServiceAccount: "pilot", Rules: readConfigMaps, ClusterRules: readConfigMaps,
		}))
		if _, err := client.CoreV1().ConfigMaps(other).List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("Pod %s: %v", pod, err)
		}
	}
	_, err := c.NewIdentity(t.Context(), cluster.IdentityOptions{Namespace: namespace, PodName: "a", ServiceAccount: "pilot"})
	if !apierrors.IsAlreadyExists(err) {
		t.Errorf("a second Pod a: %v", err)
	}
}

func TestAnExternalClusterIsUsedAsItIs(t *testing.T) {
	c := cluster.Shared(t)
	same, err := cluster.Start(t.Context(), cluster.Options{External: c.Kubeconfig()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := same.Stop(); err != nil {
			t.Error(err)
		}
	}()
	if same.URL() != c.URL() || same.Kubeconfig() != c.Kubeconfig() || same.APIServer() != nil || same.AuditLog() != "" {
		t.Errorf("it is %+v", same)
	}
	if same.Namespace(t) == "" {
		t.Error("no namespace")
	}
}
