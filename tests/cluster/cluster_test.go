package cluster_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/tests/cluster"
)

// bound limits each wait.
const bound = 30 * time.Second

func clientFor(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func until(t *testing.T, what string, holds func(context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, bound, true, holds); err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}

func TestControllers_Cleanup(t *testing.T) {
	c := cluster.Shared(t)
	client := clientFor(t, c.Admin())
	namespace := c.Namespace(t)
	until(t, "the namespace has the CA certificate", func(ctx context.Context) (bool, error) {
		list, err := client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 1 && list.Items[0].Name == "kube-root-ca.crt", err
	})

	owner, err := client.CoreV1().ConfigMaps(namespace).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name:            "owned",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().ConfigMaps(namespace).Delete(t.Context(), "owner", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the owned object is deleted", func(ctx context.Context) (bool, error) {
		list, err := client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 1, err
	})

	if err := client.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the namespace is deleted", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	// Each controller uses its own service account, as in a real cluster.
	log, err := os.ReadFile(c.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"namespace-controller", "generic-garbage-collector"} {
		if !strings.Contains(string(log), `"username":"system:serviceaccount:kube-system:`+who+`"`) {
			t.Errorf("no request by the %s", who)
		}
	}
}

func TestGatewayAPI(t *testing.T) {
	c := cluster.Shared(t)
	for range 2 { // the second call finds them
		if err := c.LoadGatewayAPI(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	served, err := clientFor(t, c.Admin()).Discovery().ServerResourcesForGroupVersion("gateway.networking.k8s.io/v1")
	if err != nil {
		t.Fatal(err)
	}
	if len(served.APIResources) == 0 {
		t.Error("no resource is served")
	}
}

// The test disturbs the API server, so it needs its own cluster.
func TestPauseAndKill_APIServer(t *testing.T) {
	c, err := cluster.Start(t.Context(), cluster.Options{WithoutControllers: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(c.Dir()); !os.IsNotExist(err) {
			t.Errorf("the folder still exists: %v", err)
		}
	}()
	impatient := c.Admin()
	impatient.Timeout = 300 * time.Millisecond
	client := clientFor(t, impatient)
	answers := func(wanted bool) {
		t.Helper()
		until(t, "the API server is available, or not", func(ctx context.Context) (bool, error) {
			_, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
			return (err == nil) == wanted, nil
		})
	}
	try := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}

	second, err := c.AddAPIServer(t.Context())
	try("add another", err)
	server := c.APIServer()
	answers(true)
	try("pause", server.Pause())
	answers(false)
	try("resume", server.Resume())
	answers(true)
	namespace := c.Namespace(t)
	try("kill", server.Kill())
	answers(false)
	_, err = clientFor(t, second.Admin()).CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
	try("request to the second API server", err)
	if err := server.Pause(); err == nil {
		t.Error("Pause of a killed API server succeeded")
	}
	try("start", server.Start(t.Context()))
	answers(true)
	if err := server.Start(t.Context()); err == nil {
		t.Error("Start of a running API server succeeded")
	}
	try("stop", server.Stop())
	try("stop again", server.Stop())
	try("start", server.Start(t.Context()))
	if _, err := clientFor(t, c.Admin()).CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{}); err != nil {
		t.Errorf("lost data: %v", err)
	}
}
