package cluster

import (
	"cmp"
	"context"
	"fmt"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pkg/kube"
)

// identityScheduler does not exist, so that no node runs the Pod of an identity.
const identityScheduler = "incumbent.dev/nobody"

// TokenLifetime is the lifetime of the tokens of Pods.
const TokenLifetime = time.Hour

// IdentityOptions describe a replica and its permissions.
type IdentityOptions struct {
	// Namespace must exist.
	Namespace string
	// PodName is the name of the Pod that the token is bound to.
	PodName string
	// ServiceAccount is the service account of the Pod. Default: PodName. Replicas may share one.
	ServiceAccount string
	// Rules are the permissions in the namespace, ClusterRules those in the cluster. They replace the rules of an
	// earlier identity with the same service account. If nil, the rules are not changed.
	Rules, ClusterRules []rbacv1.PolicyRule
}

// Identity creates a service account with its permissions and a Pod that does not run. It waits until the API server has
// loaded the permissions, and returns a client configuration with a token bound to that Pod. The API server rejects the token
// within ten seconds after the Pod is deleted. The token lasts an hour. There is no rate limit.
func (c *Cluster) Identity(t testing.TB, options IdentityOptions) *rest.Config {
	t.Helper()
	config, err := c.NewIdentity(t.Context(), options)
	if err != nil {
		t.Fatalf("create identity %s/%s: %v", options.Namespace, options.PodName, err)
	}
	return config
}

// NewIdentity is Identity without a test.
func (c *Cluster) NewIdentity(ctx context.Context, options IdentityOptions) (*rest.Config, error) {
	options.ServiceAccount = cmp.Or(options.ServiceAccount, options.PodName)
	connection, err := connect(c.admin)
	if err != nil {
		return nil, err
	}
	defer kube.CloseIdleConnections(connection)
	client := connection.Kube()
	if err := ensureServiceAccount(ctx, client, options.Namespace, options.ServiceAccount); err != nil {
		return nil, err
	}
	if err := allow(ctx, client, options); err != nil {
		return nil, err
	}
	pod, err := client.CoreV1().Pods(options.Namespace).Create(ctx, identityPod(options), metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create Pod: %w", err)
	}
	token, err := PodToken(ctx, client, pod)
	if err != nil {
		return nil, err
	}
	if err := c.awaitAllowed(ctx, options); err != nil {
		return nil, err
	}
	config := rest.AnonymousClientConfig(c.Admin())
	config.BearerToken = token
	return unlimited(config), nil
}

// NewNamespace creates a namespace with the prefix and its default service account, which Pods need.
func (c *Cluster) NewNamespace(ctx context.Context, prefix string) (string, error) {
	client, err := connect(c.admin)
	if err != nil {
		return "", err
	}
	defer kube.CloseIdleConnections(client)
	wanted := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-"}}
	made, err := client.Kube().CoreV1().Namespaces().Create(ctx, wanted, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("creating a namespace %s-…: %w", prefix, err)
	}
	// The controller creates it later, or never without controllers.
	return made.Name, ensureServiceAccount(ctx, client.Kube(), made.Name, "default")
}

func ensureServiceAccount(ctx context.Context, client kubernetes.Interface, namespace, name string) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	_, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create service account %s/%s: %w", namespace, name, err)
	}
	return nil
}

func identityPod(options IdentityOptions) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: options.PodName, Namespace: options.Namespace},
		Spec: corev1.PodSpec{
			ServiceAccountName: options.ServiceAccount,
			SchedulerName:      identityScheduler,
			Containers:         []corev1.Container{{Name: "replica", Image: "none"}},
		},
	}
}

// PodToken requests a token of the service account of a Pod that is bound to the Pod.
func PodToken(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) (string, error) {
	seconds := int64(TokenLifetime.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
		},
	}}
	granted, err := client.CoreV1().ServiceAccounts(pod.Namespace).
		CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("request token of service account %s/%s: %w", pod.Namespace, pod.Spec.ServiceAccountName, err)
	}
	return granted.Status.Token, nil
}
