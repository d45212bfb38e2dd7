package bootstrap

import (
	"context"

	"go.uber.org/atomic"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"incumbent.dev/incumbent/pkg/kube"
)

// events writes Kubernetes Events while it runs; before and after, they are dropped.
// Writing happens in the background: whoever reports one does not wait, and a server
// that refuses them hurts nothing.
type events struct {
	client   kube.Client
	identity string
	recorder atomic.Pointer[record.EventRecorderLogger]
}

func newEvents(client kube.Client, identity string) *events {
	return &events{client: client, identity: identity}
}

func (e *events) run(ctx context.Context) error {
	broadcaster := record.NewBroadcaster()
	defer broadcaster.Shutdown()
	defer e.recorder.Store(nil)
	watch := broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: e.client.Kube().CoreV1().Events("")})
	defer watch.Stop()
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: userAgent, Host: e.identity})
	e.recorder.Store(&recorder)
	<-ctx.Done()
	return nil
}

// Eventf is what locks ask of a recorder.
func (e *events) Eventf(object runtime.Object, kind, reason, message string, args ...any) {
	if recorder := e.recorder.Load(); recorder != nil {
		(*recorder).Eventf(object, kind, reason, message, args...)
	}
}
