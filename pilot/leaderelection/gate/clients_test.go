package gate_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection/gate"
)

// Clients wrap the errors of a transport.
func TestNotLeaderError_ThroughClient(t *testing.T) {
	g, _ := newGate()
	config := &rest.Config{Host: "http://127.0.0.1:1", QPS: -1}
	config.Wrap(g.Transport)
	client, err := kubernetes.NewForConfig(config)
	harness.Must(t, err)
	maps := client.CoreV1().ConfigMaps("a")
	_, err = maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, metav1.CreateOptions{})
	var refused *gate.NotLeaderError
	if !errors.Is(err, gate.ErrNotLeader) || !errors.As(err, &refused) || refused.Election != "istio-leader" || refused.Reason == "" {
		t.Errorf("create: %v", err)
	}
	if byGate, byFence := g.Refused(); byGate != 1 || byFence != 0 {
		t.Errorf("%d rejections by the gate, %d by the fence", byGate, byFence)
	}
	if _, err := maps.Get(t.Context(), "b", metav1.GetOptions{}); errors.Is(err, gate.ErrNotLeader) || err == nil {
		t.Errorf("a read was not sent: %v", err)
	}
}
