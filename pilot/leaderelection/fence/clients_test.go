package fence_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pilot/leaderelection/fence"
)

func TestNotLeaderError_ThroughClients(t *testing.T) {
	gate, _ := newGate()
	config := &rest.Config{Host: "http://127.0.0.1:1", QPS: -1}
	config.Wrap(gate.Transport)
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	untyped, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	maps := typed.CoreV1().ConfigMaps("a")
	writes := map[string]func() error{
		"create": func() error {
			_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, metav1.CreateOptions{})
			return err
		},
		"delete all": func() error { return maps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}) },
		"dynamic apply": func() error {
			object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "b"}}}
			_, err := untyped.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("a").
				Apply(t.Context(), "b", object, metav1.ApplyOptions{FieldManager: "x"})
			return err
		},
		"exec": func() error {
			return typed.CoreV1().RESTClient().Post().Namespace("a").Resource("pods").Name("b").SubResource("exec").
				VersionedParams(&corev1.PodExecOptions{Command: []string{"true"}, Stdout: true}, scheme.ParameterCodec).Do(t.Context()).Error()
		},
		// As client-go's websocket executor begins: a GET. The Upgrade header is set below the gate.
		"exec by websocket": func() error {
			return typed.CoreV1().RESTClient().Get().Namespace("a").Resource("pods").Name("b").SubResource("exec").
				SetHeader("Sec-Websocket-Protocol", "v5.channel.k8s.io").Do(t.Context()).Error()
		},
	}
	for what, write := range writes {
		var refused *fence.NotLeaderError
		if err := write(); !errors.Is(err, fence.ErrNotLeader) || !errors.As(err, &refused) || refused.Election != "istio-leader" || refused.Reason == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if byGate, byFence := gate.Refused(); byGate != uint64(len(writes)) || byFence != 0 {
		t.Errorf("%d rejections by the gate, %d by the fence", byGate, byFence)
	}
	if _, err := maps.Get(t.Context(), "b", metav1.GetOptions{}); errors.Is(err, fence.ErrNotLeader) || err == nil {
		t.Errorf("a read was not sent: %v", err)
	}
}
