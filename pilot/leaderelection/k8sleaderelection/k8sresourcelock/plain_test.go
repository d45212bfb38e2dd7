package k8sresourcelock

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

type noted struct {
	about *corev1.ConfigMap
	text  string
}

func (n *noted) Eventf(obj runtime.Object, eventType, reason, message string, args ...any) {
	n.about, n.text = obj.(*corev1.ConfigMap), eventType+" "+reason+": "+fmt.Sprintf(message, args...)
}

// echo returns each write as stored but stores nothing.
type echo struct {
	corev1client.ConfigMapInterface
	sent []*corev1.ConfigMap
}

func (e *echo) ConfigMaps(string) corev1client.ConfigMapInterface { return e }

func (e *echo) Create(_ context.Context, cm *corev1.ConfigMap, _ metav1.CreateOptions) (*corev1.ConfigMap, error) {
	e.sent = append(e.sent, cm)
	stored := cm.DeepCopy()
	stored.UID, stored.ResourceVersion = "u", "7"
	return stored, nil
}

func TestRecordEvent(t *testing.T) {
	recorder := &noted{}
	l := lockOn(&echo{})
	l.LockConfig.EventRecorder = recorder
	if _, err := l.Write(t.Context(), Snapshot{}, golden, nil); err != nil {
		t.Fatal(err)
	}
	l.RecordEvent("became 100% leader")
	if want := "Normal LeaderElection: pod-a became 100% leader"; recorder.text != want {
		t.Errorf("%q, want %q", recorder.text, want)
	}
	about := recorder.about
	if about.Kind != "ConfigMap" || about.APIVersion != "v1" || about.Namespace != "istio-system" ||
		about.Name != "istio-leader" || about.UID != "u" || about.ResourceVersion != "7" {
		t.Errorf("about %+v", about)
	}
}

// A created object has the labels, annotations and owners of the lock.
func TestCreate_Meta(t *testing.T) {
	client := &echo{}
	l := lockOn(client)
	l.ConfigMapMeta.Labels = map[string]string{"app": "pilot"}
	l.ConfigMapMeta.Annotations = map[string]string{"example.com/x": "y", HoldAnnotation: "from the meta"}
	l.ConfigMapMeta.OwnerReferences = []metav1.OwnerReference{{Kind: "Deployment", Name: "pilot"}}
	l.ConfigMapMeta.ResourceVersion = "3"
	if _, err := l.Write(t.Context(), Snapshot{}, golden, map[string]string{MarkerAnnotation: "v1 pod-a 3"}); err != nil {
		t.Fatal(err)
	}
	sent := client.sent[0]
	if sent.Labels["app"] != "pilot" || sent.OwnerReferences[0].Name != "pilot" || sent.ResourceVersion != "" {
		t.Errorf("sent %+v", sent)
	}
	if len(sent.Annotations) != 3 || sent.Annotations["example.com/x"] != "y" || sent.Annotations[MarkerAnnotation] == "" {
		t.Errorf("annotations %v", sent.Annotations)
	}
	if len(l.ConfigMapMeta.Annotations) != 2 {
		t.Errorf("the meta was changed: %v", l.ConfigMapMeta.Annotations)
	}
}
