package witness

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/reference"
)

// recorder writes Events synchronously, because a parent ends after the release. Errors have no effect.
type recorder struct {
	ctx    context.Context
	client corev1client.EventsGetter
}

// Eventf implements k8sresourcelock.EventRecorder.
func (r recorder) Eventf(object runtime.Object, kind, reason, text string, args ...any) {
	ref, err := reference.GetReference(scheme.Scheme, object)
	if err != nil {
		return
	}
	now := metav1.Now()
	_, _ = r.client.Events(ref.Namespace).Create(r.ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: ref.Name + ".", Namespace: ref.Namespace},
		InvolvedObject: *ref, Type: kind, Reason: reason, Message: fmt.Sprintf(text, args...),
		Source: corev1.EventSource{Component: "incumbent-witness"}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
}
