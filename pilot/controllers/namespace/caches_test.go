package namespace

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"

	"incumbent.dev/incumbent/pkg/kube"
)

// With a server that refuses connections for long, the end of the context ends the
// informer at once.
func TestInformersEndAtOnceWhileTheServerIsAway(t *testing.T) {
	refused := fmt.Errorf("get: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
	for name, err := range map[string]error{"refused": refused, "too many": apierrors.NewTooManyRequests("slow down", 1)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				trouble := kube.NewTrouble(slog.New(slog.DiscardHandler), nil)
				tries := 0
				list := func(context.Context, metav1.ListOptions) (*corev1.NamespaceList, error) { return nil, err }
				follow := func(context.Context, metav1.ListOptions) (watch.Interface, error) { tries++; return nil, err }
				i := informer(&corev1.Namespace{}, slimNamespace, listWatch(trouble, "namespaces", metav1.ListOptions{}, list, follow))
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					i.RunWithContext(ctx)
				}()
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if tries < 10 || tries > 60 {
					t.Errorf("%d tries in ten minutes", tries)
				}
				cancel()
				stopped := time.Now()
				<-ended
				if took := time.Since(stopped); took > time.Second {
					t.Errorf("it took %v to end", took)
				}
			})
		})
	}
}

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
	for name, test := range map[string]struct {
		slim     func(any) (any, error)
		in, want any
	}{
		"namespace": {
			slimNamespace,
			&corev1.Namespace{ObjectMeta: meta, Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"x"}}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}},
			&corev1.Namespace{ObjectMeta: kept, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}},
		},
		"what is no namespace": {slimNamespace, "gone", "gone"},
		"ConfigMap": {
			slim,
			&corev1.ConfigMap{ObjectMeta: meta, Immutable: &yes, Data: map[string]string{"theirs": "x", BundleKey: "y"}, BinaryData: map[string][]byte{BundleKey: {1}}},
			&corev1.ConfigMap{ObjectMeta: kept, Immutable: &yes, Data: map[string]string{BundleKey: "y"}},
		},
		"ConfigMap without the key": {
			slim, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"theirs": "x"}}, &corev1.ConfigMap{ObjectMeta: kept},
		},
		"what is no ConfigMap": {slim, "gone", "gone"},
	} {
		if got, err := test.slim(test.in); err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: kept %+v, %v; want %+v", name, got, err, test.want)
		}
	}
	got, _ := slim(&corev1.ConfigMap{Data: map[string]string{BundleKey: string([]byte("content"))}})
	if in := got.(*corev1.ConfigMap).Data[BundleKey]; unsafe.StringData(in) != unsafe.StringData(content) {
		t.Error("the bundle in force is kept once more")
	}
}

// What client-go's reflector would wait for is hidden from it, in every run of the test above.
func TestInterruptible(t *testing.T) {
	refused := fmt.Errorf("get: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
	for _, err := range []error{refused, apierrors.NewTooManyRequests("slow down", 1)} {
		if got := interruptible(err); got == nil || got.Error() != err.Error() || utilnet.IsConnectionRefused(got) || apierrors.IsTooManyRequests(got) {
			t.Errorf("%v stays %T: %v", err, got, got)
		}
	}
	expired := apierrors.NewResourceExpired("old")
	if got := interruptible(expired); got != error(expired) {
		t.Errorf("%v became %T: %v", expired, got, got)
	}
	if got := interruptible(nil); got != nil {
		t.Errorf("nothing became %v", got)
	}
}
