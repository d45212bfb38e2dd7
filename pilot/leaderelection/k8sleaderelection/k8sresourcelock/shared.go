package k8sresourcelock

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"incumbent.dev/incumbent/internal/watch"
)

// defaultMinSharedWatches is used if MinSharedWatches is 0.
const defaultMinSharedWatches = 4

// Shared lets the electors of one process share watches and a limit of concurrent calls. Set the same Shared in
// the configurations of the electors and in their LeaseLocks. The zero value shares neither. Use a separate Shared
// for each API server, because a server that hangs would delay calls to the others.
//
// Without the limit, electors that start together, or recover together after an outage, open many connections and
// goroutines. An API server accepts about 100 streams on each connection.
//
// A shared watch follows all Leases of a namespace. It needs permission to watch all of them, because RBAC cannot
// restrict such a watch to names. If the permission is missing, each lock is watched by name, and the shared watch
// is tried again after ten minutes. The shared watch runs only while it has users. Of other Leases it keeps only
// names and versions. ConfigMap locks are always watched by name, because other ConfigMaps can be large and
// confidential.
type Shared struct {
	// Client watches namespaces. It should be the client of the locks. If nil, each lock has its own watch.
	Client coordinationv1client.LeasesGetter
	// MinSharedWatches is the minimum number of watches in a namespace that share one watch. 0 means 4: few locks
	// can be named one by one in a Role.
	MinSharedWatches int
	// MaxConcurrentCalls limits the calls that run at the same time. 0 means no limit.
	MaxConcurrentCalls int

	mu         sync.Mutex // guards what follows, shared watches included
	running    chan struct{}
	namespaces map[string]*watchers
}

// watchers describes the watches in one namespace.
type watchers struct {
	count int
	// shared is the watch of the namespace. It is nil if there is none.
	shared *feed
	// forbidden reports that the namespace is not watched because the permission is missing. It is reset after watch.MaxWatch.
	forbidden bool
}

// addWatch counts one more watch in a namespace. The caller holds mu.
func (s *Shared) addWatch(namespace string) {
	if s.namespaces == nil {
		s.namespaces = map[string]*watchers{}
	}
	if s.namespaces[namespace] == nil {
		s.namespaces[namespace] = &watchers{}
	}
	s.namespaces[namespace].count++
}

// removeWatch reverts addWatch. A missing permission is remembered longer than the last watch, because another
// lock may start a watch soon. The caller holds mu.
func (s *Shared) removeWatch(namespace string) {
	all := s.namespaces[namespace]
	if all.count--; all.count == 0 && !all.forbidden {
		delete(s.namespaces, namespace)
	}
}

// join adds w to the watch of its namespace. It returns false if the Lease must be watched by name. The caller holds mu.
func (s *Shared) join(w *lockWatch) bool {
	all, minimum := s.namespaces[w.namespace], s.MinSharedWatches
	if minimum == 0 {
		minimum = defaultMinSharedWatches
	}
	switch {
	case s.Client == nil || all.forbidden:
		return false
	case all.shared == nil && all.count < minimum:
		return false
	case all.shared == nil:
		// The watch may outlive its first user. The last user ends it.
		all.shared = newFeed(context.WithoutCancel(w.ctx), s, w.namespace, directLeases(s.Client).Leases(w.namespace).Watch, metav1.ListOptions{})
	}
	all.shared.add(w)
	return true
}

// forget prevents further locks from using a watch that ends. The caller holds mu.
func (s *Shared) forget(f *feed) {
	if all := s.namespaces[f.namespace]; all.shared == f {
		all.shared = nil
	}
}

// setForbidden makes the locks of a namespace use watches by name until watch.MaxWatch has passed. The caller holds mu.
func (s *Shared) setForbidden(namespace string) {
	all := s.namespaces[namespace]
	all.forbidden = true
	time.AfterFunc(watch.MaxWatch, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if all.forbidden = false; all.count == 0 {
			delete(s.namespaces, namespace)
		}
	})
}
