package coordinated

import (
	"context"
	"slices"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// record records all versions of an object until the test ends or the API server restarts.
func record[T any](w *world, follow func(context.Context, metav1.ListOptions) (watch.Interface, error), name string) *versions[T] {
	w.t.Helper()
	events, err := follow(w.t.Context(), metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()})
	if err != nil {
		w.t.Fatal(err)
	}
	v := &versions[T]{}
	w.background(func(ctx context.Context) {
		context.AfterFunc(ctx, events.Stop)
		for event := range events.ResultChan() {
			if object, ok := event.Object.(T); ok {
				v.mu.Lock()
				v.all = append(v.all, object)
				v.mu.Unlock()
			}
		}
	})
	return v
}

// versions contains the versions of an object.
type versions[T any] struct {
	mu  sync.Mutex
	all []T
}

func (v *versions[T]) list() []T {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.all)
}

// history contains all versions of the lock.
type history struct {
	*versions[*coordinationv1.Lease]
}

// history records the lock.
func (w *world) history() history {
	w.t.Helper()
	return history{record[*coordinationv1.Lease](w, w.admin.Kube().CoordinationV1().Leases(w.home).Watch, "x")}
}

// led returns the holders that wrote the lock themselves, in order, without repetitions: a holder may lead again if its successor was
// too slow. It fails if a term has two holders or the transitions decrease.
func (h history) led(t *testing.T) (all []string) {
	t.Helper()
	last := int32(-1)
	for _, l := range h.list() {
		holder, term := ptr.Deref(l.Spec.HolderIdentity, ""), ptr.Deref(l.Spec.LeaseTransitions, 0)
		switch same := len(all) > 0 && all[len(all)-1] == holder; {
		case holder == "" || nominated(l):
		case same && term >= last:
			last = term
		case term > last:
			all = append(all, holder)
			last = term
		default:
			t.Errorf("%s leads in term %d after term %d of %q", holder, term, last, all)
		}
	}
	return all
}

// nominated reports whether another process wrote the holder.
func nominated(l *coordinationv1.Lease) bool {
	return l.Spec.AcquireTime == nil || l.Annotations[k8sresourcelock.NominatedAnnotation] == ptr.Deref(l.Spec.HolderIdentity, "")
}

// renewals counts the renewals of a holder in its current term.
func (h history) renewals(who string) (n int) {
	for _, l := range slices.Backward(h.list()) {
		if ptr.Deref(l.Spec.HolderIdentity, "") != who {
			break
		}
		n++
	}
	return n - 1
}
