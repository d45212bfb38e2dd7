package locks

import (
	"context"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/tests/cluster"
)

// The in-memory store handles PUT requests like the API server, including requests that only other electors send.
func TestPutOnBothStores(t *testing.T) {
	for _, kind := range []locktest.Kind{locktest.ConfigMap, locktest.Lease} {
		t.Run(string(kind), func(t *testing.T) {
			s := newScene(t, kind, func(*rest.Config) {})
			t.Run("real", func(t *testing.T) {
				if kind == locktest.Lease {
					playPuts(t, kind, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: lockName, Namespace: s.namespace}},
						s.candidate.CoordinationV1().Leases(s.namespace), func() { s.remove(t) })
					return
				}
				playPuts(t, kind, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: lockName, Namespace: s.namespace}},
					s.candidate.CoreV1().ConfigMaps(s.namespace), func() { s.remove(t) })
			})
			t.Run("in memory", func(t *testing.T) {
				store := locktest.NewStore(kind)
				meta := metav1.ObjectMeta{Name: locktest.Name, Namespace: locktest.Namespace}
				remove := func() { store.Delete() }
				if kind == locktest.Lease {
					playPuts(t, kind, &coordinationv1.Lease{ObjectMeta: meta}, store.Client("x").Leases(meta.Namespace), remove)
					return
				}
				playPuts(t, kind, &corev1.ConfigMap{ObjectMeta: meta}, store.Client("x").ConfigMaps(meta.Namespace), remove)
			})
		})
	}
}

func playPuts[T apiserver.Object](t *testing.T, kind locktest.Kind, blank T, c cluster.Objects[T], remove func()) {
	var (
		name    = blank.GetName()
		succeed = func(err error) bool { return err == nil }
		isLease = kind == locktest.Lease
	)
	tests := []struct {
		name string
		// gone: the object was deleted before the PUT.
		gone         bool
		uid, version bool // sent
		want         func(error) bool
		there        bool // afterwards
	}{
		{"guarded", false, true, true, succeed, true},
		{"without a UID", false, false, true, succeed, true},
		{"without a version", false, true, false, either(isLease, apierrors.IsInvalid, succeed), true},
		{"gone, guarded", true, true, true, either(isLease, apierrors.IsConflict, apierrors.IsNotFound), false},
		{"gone, without a UID", true, false, true, either(isLease, succeed, apierrors.IsNotFound), isLease},
		{"gone, without either", true, false, false, either(isLease, succeed, apierrors.IsNotFound), isLease},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			remove()
			obj, err := c.Create(t.Context(), blank.DeepCopyObject().(T), metav1.CreateOptions{})
			harness.Must(t, err)
			if tt.gone {
				remove()
			}
			if !tt.uid {
				obj.SetUID(types.UID(""))
			}
			if !tt.version {
				obj.SetResourceVersion("")
			}
			obj.SetManagedFields(nil)
			obj.SetLabels(map[string]string{"put": "1"})
			if _, err = c.Update(t.Context(), obj, metav1.UpdateOptions{}); !tt.want(err) {
				t.Errorf("PUT: %v", err)
			}
			_, err = c.Get(context.WithoutCancel(t.Context()), name, metav1.GetOptions{})
			if tt.there && err != nil || !tt.there && !apierrors.IsNotFound(err) {
				t.Errorf("afterwards: %v, want it there: %v", err, tt.there)
			}
		})
	}
}

func either[F any](first bool, a, b F) F {
	if first {
		return a
	}
	return b
}
