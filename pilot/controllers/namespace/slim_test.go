package namespace

import (
	"reflect"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What is kept of an object is what is looked at, and no bundle twice.
func TestSlim(t *testing.T) {
	now, yes := metav1.Now(), true
	meta := metav1.ObjectMeta{
		Name: "n", Namespace: "s", UID: "u", ResourceVersion: "7", DeletionTimestamp: &now,
		Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{}},
	}
	kept := metav1.ObjectMeta{Name: "n", Namespace: "s", UID: "u", ResourceVersion: "7", DeletionTimestamp: &now}
	content := string([]byte("content"))
	slim := slimConfigMap(func() string { return content })
	slimMap := func(o any) any { return slim(o.(*corev1.ConfigMap)) }
	for name, test := range map[string]struct {
		slim     func(any) any
		in, want any
	}{
		"namespace": {
			func(o any) any { return slimNamespace(o.(*corev1.Namespace)) },
			&corev1.Namespace{ObjectMeta: meta, Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"x"}}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}},
			&corev1.Namespace{ObjectMeta: kept, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}},
		},
		"ConfigMap": {
			slimMap,
			&corev1.ConfigMap{ObjectMeta: meta, Immutable: &yes, Data: map[string]string{"theirs": "x", BundleKey: "y"}, BinaryData: map[string][]byte{BundleKey: {1}}},
			&corev1.ConfigMap{ObjectMeta: kept, Immutable: &yes, Data: map[string]string{BundleKey: "y"}},
		},
		"ConfigMap without the key": {
			slimMap, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"theirs": "x"}}, &corev1.ConfigMap{ObjectMeta: kept},
		},
	} {
		if got := test.slim(test.in); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: kept %+v; want %+v", name, got, test.want)
		}
	}
	got := slim(&corev1.ConfigMap{Data: map[string]string{BundleKey: string([]byte("content"))}})
	if in := got.Data[BundleKey]; unsafe.StringData(in) != unsafe.StringData(content) {
		t.Error("the bundle in force is kept once more")
	}
}
