package cluster_test

import (
	"context"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/tests/cluster"
)

func whoami(ctx context.Context, client *kubernetes.Clientset) (authenticationv1.UserInfo, error) {
	review, err := client.AuthenticationV1().SelfSubjectReviews().
		Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	return review.Status.UserInfo, nil
}

func TestIdentity_PodToken(t *testing.T) {
	c := cluster.Shared(t)
	namespace := c.Namespace(t)
	config := c.Identity(t, cluster.IdentityOptions{Namespace: namespace, PodName: "a", ServiceAccount: "pilot"})
	user, err := whoami(t.Context(), clientFor(t, config))
	if err != nil {
		t.Fatal(err)
	}
	if user.Username != "system:serviceaccount:"+namespace+":pilot" {
		t.Errorf("user name %s", user.Username)
	}
	if name := user.Extra["authentication.kubernetes.io/pod-name"]; !slices.Equal(name, []string{"a"}) {
		t.Errorf("Pod %q", name)
	}
}

// The API server caches a token for ten seconds, so this token is not used before.
func TestIdentity_DeletedPod(t *testing.T) {
	c := cluster.Shared(t)
	namespace := c.Namespace(t)
	client := clientFor(t, c.Identity(t, cluster.IdentityOptions{Namespace: namespace, PodName: "a"}))
	admin := clientFor(t, c.Admin())
	if err := admin.CoreV1().Pods(namespace).Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the API server rejects it", func(ctx context.Context) (bool, error) {
		_, err := whoami(ctx, client)
		return apierrors.IsUnauthorized(err), nil
	})
}
