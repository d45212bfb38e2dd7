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

// A service account has the rules that it was given last, and all of them go.
func TestRulesReplaceEarlierOnes(t *testing.T) {
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
	until(t, "its rules are those that came last, and those that nobody replaced", func(context.Context) (bool, error) {
		_, mapsHere := may(b, namespace)
		secretsThere, mapsThere := may(b, other)
		return mapsHere && secretsThere && !mapsThere, nil
	})
	b = identity("c", nil, readConfigMaps)
	until(t, "what was replaced is gone", func(context.Context) (bool, error) {
		secretsHere, mapsHere := may(b, namespace)
		secretsThere, mapsThere := may(b, other)
		return !secretsHere && mapsHere && !secretsThere && mapsThere, nil
	})
}

// claims are what a token says, unchecked.
func claims(t *testing.T, token string) (said struct {
	Issuer   string   `json:"iss"`
	Audience []string `json:"aud"`
	Issued   int64    `json:"iat"`
	Expires  int64    `json:"exp"`
}) {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("a token of %d parts", len(parts))
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

// Tokens are the API server's own and for it alone, and end when they say.
func TestTokensAreForTheAPIServerAndEnd(t *testing.T) {
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
	// What kubelets ask for is what API servers extend to a year unless they are told not to.
	const kubelets = 3607
	if said := claims(t, token(kubelets)); said.Expires-said.Issued != kubelets {
		t.Errorf("a token of %d s ends after %d s", kubelets, said.Expires-said.Issued)
	}
	config.BearerToken = token(3600, "somebody-else")
	if _, err := whoami(t.Context(), clientFor(t, config)); !apierrors.IsUnauthorized(err) {
		t.Errorf("a token for somebody else: %v", err)
	}
}

// A Pod has a service account, as everywhere.
func TestAPodNeedsItsServiceAccount(t *testing.T) {
	c := cluster.Shared(t)
	namespace := c.Namespace(t)
	pods := clientFor(t, c.Admin()).CoreV1().Pods(namespace)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.PodSpec{
		ServiceAccountName: "nobody", Containers: []corev1.Container{{Name: "a", Image: "none"}},
	}}
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a Pod of a service account that is not there: %v", err)
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
	var namespace string
	t.Run("as a guest", func(t *testing.T) { namespace = same.Namespace(t) })
	if namespace == "" {
		t.Fatal("no namespace")
	}
	until(t, "what a guest has made is taken away", func(ctx context.Context) (bool, error) {
		found, err := clientFor(t, c.Admin()).CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err) || err == nil && found.DeletionTimestamp != nil, nil
	})
}
