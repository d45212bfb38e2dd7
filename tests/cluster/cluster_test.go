package cluster_test

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/waits"
	"incumbent.dev/incumbent/tests/cluster"
)

// Each controller uses its own service account, as in a real cluster. The fence identifies the namespace controller by it.
func TestControllers_ServiceAccounts(t *testing.T) {
	c := cluster.Shared(t)
	namespace := c.Namespace(t)
	client := c.Client(t).Kube().CoreV1()
	if _, err := client.ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waits.Until(t, "the namespace is deleted", func() bool {
		_, err := client.Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	for _, user := range []string{"namespace-controller", "generic-garbage-collector"} {
		waits.Until(t, "a request of "+user+" is logged", func() bool {
			log, err := os.ReadFile(c.AuditLog())
			if err != nil {
				t.Fatal(err)
			}
			return strings.Contains(string(log), `"username":"system:serviceaccount:kube-system:`+user+`"`)
		})
	}
}

func TestServers_WrongState(t *testing.T) {
	c := cluster.Shared(t)
	server, err := c.AddAPIServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(t.Context()); err == nil {
		t.Error("a running API server was started")
	}
	for range 2 {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	}
	if err := server.Pause(); err == nil {
		t.Error("a stopped API server was paused")
	}
}
