package witness

import (
	"bytes"
	"context"
	"strings"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"incumbent.dev/incumbent/internal/record"
)

// moment is a kind of moment at which the test kills a candidate.
type moment string

// history follows the lock, a Lease, and has the moment at which the test killed each candidate.
type history struct {
	s *stage

	mu     sync.Mutex
	now    version
	killed map[string]moment
	writes int // of witnesses
}

// version is a version of the lock.
type version struct {
	holder    string
	marked    bool // its holder acts or has acted in this term
	requested bool // a challenger requests a handover
}

// follow watches the lock, which does not exist yet, until the end of the test.
func follow(s *stage) *history {
	s.Helper()
	h := &history{s: s, killed: map[string]moment{}}
	leases := s.admin.CoordinationV1().Leases(s.namespace)
	found, err := leases.List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	// It continues after the API server has ended a watch.
	w, err := watchtools.NewRetryWatcherWithContext(s.Context(), found.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = "metadata.name=" + election
			return leases.Watch(ctx, options)
		},
	})
	if err != nil {
		s.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		for event := range w.ResultChan() {
			if lease, ok := event.Object.(*coordinationv1.Lease); ok {
				h.observe(event.Type, lease)
			}
		}
	})
	s.Cleanup(func() {
		w.Stop()
		done.Wait()
	})
	return h
}

// observe checks a write of a witness: the lock must have had the term of a candidate that the test had killed.
func (h *history) observe(kind watch.EventType, lease *coordinationv1.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.now
	if h.now = (version{}); kind == watch.Deleted {
		return
	}
	if lease.Spec.HolderIdentity != nil {
		h.now.holder = *lease.Spec.HolderIdentity
	}
	h.now.marked = strings.HasPrefix(lease.Annotations[record.MarkerAnnotation], "v1 "+h.now.holder+" ")
	h.now.requested = lease.Annotations[record.HandoverRequestAnnotation] != ""
	if h.now == before || releaser(lease) == candidateAgent {
		return
	}
	h.writes++
	if h.killed[before.holder] == "" || !before.marked || h.now.holder != "" {
		h.s.Errorf("a witness replaced %+v by %+v", before, h.now)
	}
}

// releaser returns the user agent of the last process that acquired or released a lease. Both change the duration.
func releaser(lease *coordinationv1.Lease) string {
	for _, entry := range lease.ManagedFields {
		if entry.FieldsV1 != nil && bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:leaseDurationSeconds"`)) {
			return entry.Manager
		}
	}
	return ""
}

// latest returns the version of the lock.
func (h *history) latest() version {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

// kills records that the test ends a candidate now.
func (h *history) kills(name string, m moment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.killed[name] = m
}
