package coordinated

import (
	"context"
	"slices"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// history contains all versions of the lock.
type history struct {
	mu  sync.Mutex
	all []*coordinationv1.Lease
}

// history records the lock until the test ends or the API server restarts.
func (w *world) history() *history {
	w.t.Helper()
	leases := w.admin().Kube().CoordinationV1().Leases(w.home)
	watch, err := leases.Watch(w.t.Context(), metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", "x").String()})
	if err != nil {
		w.t.Fatal(err)
	}
	h := &history{}
	w.background(func(ctx context.Context) {
		context.AfterFunc(ctx, watch.Stop)
		for event := range watch.ResultChan() {
			if lease, ok := event.Object.(*coordinationv1.Lease); ok {
				h.mu.Lock()
				h.all = append(h.all, lease)
				h.mu.Unlock()
			}
		}
	})
	return h
}

func (h *history) versions() []*coordinationv1.Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.all)
}

// led returns the holders that wrote the lock themselves, in order. It fails if a term has two holders or the transitions decrease.
func (h *history) led(t *testing.T) (all []string) {
	t.Helper()
	last := int32(-1)
	for _, l := range h.versions() {
		holder, term := value(l.Spec.HolderIdentity), value(l.Spec.LeaseTransitions)
		switch same := len(all) > 0 && all[len(all)-1] == holder; {
		case holder == "" || nominated(l) || same && term == last:
		case !same && term > last:
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
	return l.Spec.AcquireTime == nil || l.Annotations[k8sresourcelock.NominatedAnnotation] == value(l.Spec.HolderIdentity)
}

// renewals counts the renewals of a holder in its current term.
func (h *history) renewals(who string) (n int) {
	for _, l := range slices.Backward(h.versions()) {
		if value(l.Spec.HolderIdentity) != who {
			break
		}
		n++
	}
	return n - 1
}
