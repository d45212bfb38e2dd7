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

// history is what the lock has been, version by version.
type history struct {
	mu  sync.Mutex
	all []*coordinationv1.Lease
}

// history records the lock until the test's end. It does not outlast an API server.
func (w *world) history() *history {
	w.t.Helper()
	leases := w.admin().Kube().CoordinationV1().Leases(w.home)
	all, err := leases.List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	watch, err := leases.Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", "x").String(), ResourceVersion: all.ResourceVersion,
	})
	if err != nil {
		cancel()
		w.t.Fatal(err)
	}
	h := &history{}
	for i := range all.Items {
		if all.Items[i].Name == "x" {
			h.all = append(h.all, &all.Items[i])
		}
	}
	var watching sync.WaitGroup
	watching.Go(func() {
		for event := range watch.ResultChan() {
			if lease, ok := event.Object.(*coordinationv1.Lease); ok {
				h.mu.Lock()
				h.all = append(h.all, lease)
				h.mu.Unlock()
			}
		}
	})
	w.t.Cleanup(func() { watch.Stop(); cancel(); watching.Wait() })
	return h
}

func (h *history) versions() []*coordinationv1.Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.all)
}

// holders are those that have been, in order, each as long as it was one after another: "" for nobody.
func (h *history) holders() (all []string) {
	for _, l := range h.versions() {
		all = append(all, value(l.Spec.HolderIdentity))
	}
	return slices.Compact(all)
}

// led are those that have taken the lock by a write of their own, in order: "" for nobody.
func (h *history) led() (all []string) {
	for _, l := range h.versions() {
		holder := value(l.Spec.HolderIdentity)
		if holder == "" || !nominated(l) {
			all = append(all, holder)
		}
	}
	return slices.Compact(all)
}

// nominated reports whether the holder was written in by another and has not written itself.
func nominated(l *coordinationv1.Lease) bool {
	return l.Spec.AcquireTime == nil || l.Annotations[k8sresourcelock.NominatedAnnotation] == value(l.Spec.HolderIdentity)
}

// preferred are those that have been preferred to a holder, in order.
func (h *history) preferred() (all []string) {
	for _, l := range h.versions() {
		all = append(all, value(l.Spec.PreferredHolder))
	}
	return slices.DeleteFunc(slices.Compact(all), func(who string) bool { return who == "" })
}

// named counts how often somebody was written in as holder, or preferred to one: each time once.
func (h *history) named(who string) (n int) {
	was := false
	for _, l := range h.versions() {
		is := value(l.Spec.HolderIdentity) == who || value(l.Spec.PreferredHolder) == who
		if is && !was {
			n++
		}
		was = is
	}
	return n
}

// renewals counts the writes by which a holder has only said that it lives, in its present term.
func (h *history) renewals(who string) (n int) {
	for _, l := range slices.Backward(h.versions()) {
		if value(l.Spec.HolderIdentity) != who {
			break
		}
		n++
	}
	return n - 1
}

// falls reports whether the transitions have ever become fewer.
func (h *history) falls() bool {
	return !slices.IsSortedFunc(h.versions(), func(a, b *coordinationv1.Lease) int {
		return int(value(a.Spec.LeaseTransitions)) - int(value(b.Spec.LeaseTransitions))
	})
}

// heldByNil fails where the lock ever had no holder, not even an empty one, since a candidate has held it.
func (h *history) heldByNil(t *testing.T) {
	t.Helper()
	held := false
	for _, l := range h.versions() {
		if held = held || l.Spec.HolderIdentity != nil; held && l.Spec.HolderIdentity == nil {
			t.Errorf("Kubernetes' controller crashes on %+v", l.Spec)
		}
	}
}
