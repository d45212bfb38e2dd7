package cluster_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/tests/cluster"
)

// readConfigMaps are the permissions of the identities below.
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

func TestIdentity_Permissions(t *testing.T) {
	c := cluster.Shared(t)
	namespace, other := c.Namespace(t), c.Namespace(t)
	client := clientFor(t, c.Identity(t, cluster.IdentityOptions{
		Namespace: namespace, PodName: "a", Rules: readConfigMaps,
	}))
	ctx := t.Context()
	if _, err := client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("allowed request rejected: %v", err)
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

func TestIdentity_ReplacesRules(t *testing.T) {
	c := cluster.Shared(t)
	namespace, other := c.Namespace(t), c.Namespace(t)
	secrets := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list"}}}
	identity := func(pod string, rules, clusterRules []rbacv1.PolicyRule) *kubernetes.Clientset {
		return clientFor(t, c.Identity(t, cluster.IdentityOptions{
			Namespace: namespace, PodName: pod, ServiceAccount: "pilot", Rules: rules, ClusterRules: clusterRules,
		}))
	}
	may := func(client *kubernetes.Clientset, namespace string) (secrets, maps bool) {
		_, secretsErr := client.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
		_, mapsErr := client.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
		return secretsErr == nil, mapsErr == nil
	}
	identity("a", secrets, secrets)
	b := identity("b", readConfigMaps, nil)
	until(t, "the last rules are in effect", func(context.Context) (bool, error) {
		_, mapsHere := may(b, namespace)
		secretsThere, mapsThere := may(b, other)
		return mapsHere && secretsThere && !mapsThere, nil
	})
	b = identity("c", nil, readConfigMaps)
	until(t, "the replaced rules are gone", func(context.Context) (bool, error) {
		secretsHere, mapsHere := may(b, namespace)
		secretsThere, mapsThere := may(b, other)
		return !secretsHere && mapsHere && !secretsThere && mapsThere, nil
	})
}

// claims returns the claims of a token without verification.
func claims(t *testing.T, token string) (said struct {
	Issuer   string   `json:"iss"`
	Audience []string `json:"aud"`
	Issued   int64    `json:"iat"`
	Expires  int64    `json:"exp"`
}) {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("token of %d parts", len(parts))
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(text, &said)
	}
	if err != nil {
		t.Fatal(err)
	}
	return said
}

func TestTokens_AudienceAndExpiry(t *testing.T) {
	c := cluster.Shared(t)
	namespace := c.Namespace(t)
	admin := clientFor(t, c.Admin())
	config := c.Identity(t, cluster.IdentityOptions{Namespace: namespace, PodName: "a"})
	const own = "https://kubernetes.default.svc"
	if said := claims(t, config.BearerToken); said.Issuer != own || !slices.Equal(said.Audience, []string{own}) || said.Expires-said.Issued != 3600 {
		t.Errorf("it says %+v", said)
	}
	pod, err := admin.CoreV1().Pods(namespace).Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token := func(seconds int64, audiences ...string) string {
		granted, err := admin.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), "a", &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{
				ExpirationSeconds: &seconds, Audiences: audiences,
				BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "a", UID: pod.UID},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return granted.Status.Token
	}
	// The lifetime that kubelets request, which API servers extend to a year by default.
	const kubelets = 3607
	if said := claims(t, token(kubelets)); said.Expires-said.Issued != kubelets {
		t.Errorf("a token of %d s expires after %d s", kubelets, said.Expires-said.Issued)
	}
	config.BearerToken = token(3600, "somebody-else")
	if _, err := whoami(t.Context(), clientFor(t, config)); !apierrors.IsUnauthorized(err) {
		t.Errorf("token for another audience: %v", err)
	}
}

func TestPod_MissingServiceAccount(t *testing.T) {
	c := cluster.Shared(t)
	namespace := c.Namespace(t)
	pods := clientFor(t, c.Admin()).CoreV1().Pods(namespace)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.PodSpec{
		ServiceAccountName: "nobody", Containers: []corev1.Container{{Name: "a", Image: "none"}},
	}}
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("Pod with a missing service account: %v", err)
	}
}

func TestIdentity_SharedServiceAccount(t *testing.T) {
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

func TestExternalCluster(t *testing.T) {
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
	var namespace string
	t.Run("as a guest", func(t *testing.T) { namespace = same.Namespace(t) })
	if namespace == "" {
		t.Fatal("no namespace")
	}
	until(t, "the namespace is deleted", func(ctx context.Context) (bool, error) {
		found, err := clientFor(t, c.Admin()).CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err) || err == nil && found.DeletionTimestamp != nil, nil
	})
}
