package k8sresourcelock

import (
	"sync"
	"time"

	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// defaultShareFrom is ShareFrom when it is not set.
const defaultShareFrom = 4

// WatchHub lets the LeaseLocks of a process share one watch of each namespace, instead
// of one watch and three goroutines for each lock: set LeaseLock.Hub.
//
// A watch of a whole namespace needs a right that cannot be restricted to names. Where
// it is missing, each lock is watched by its name, and the right is tried again after
// ten minutes. A hub runs only while somebody watches, and keeps nothing of Leases
// that nobody watches but their names and versions.
//
// ConfigMaps have no hub: in a namespace most of them are others', large, and secret
// enough that an elector should not have to be shown them.
type WatchHub struct {
	// Client is the locks' own.
	Client coordinationv1client.LeasesGetter
	// ShareFrom is how many watches there must be in a namespace before it is watched
	// as a whole. 0 means 4: few locks can be named one by one in a Role.
	ShareFrom int

	mu         sync.Mutex
	namespaces map[string]*watchers
}

// watchers are those who watch in one namespace, in whichever way.
type watchers struct {
	count int
	// shared is the present watch of the namespace, nil when there is none.
	shared *sharedWatch
	// refused runs while the namespace may not be watched as a whole; nil: it may be.
	refused *time.Timer
}

// enter counts somebody who watches in a namespace.
func (h *WatchHub) enter(namespace string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.namespaces == nil {
		h.namespaces = map[string]*watchers{}
	}
	if h.namespaces[namespace] == nil {
		h.namespaces[namespace] = &watchers{}
	}
	h.namespaces[namespace].count++
}

// leave ends what enter counted. That a namespace may not be watched outlives the last
// one who watches there: he may be about to watch by name.
func (h *WatchHub) leave(namespace string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.namespaces[namespace]
	if all.count--; all.count == 0 && all.refused == nil {
		delete(h.namespaces, namespace)
	}
}

// join gives somebody who has entered a share in the namespace's watch. It returns nil
// when a Lease should be watched by its name.
func (h *WatchHub) join(w *lockWatch) *share {
	h.mu.Lock()
	defer h.mu.Unlock()
	all, least := h.namespaces[w.namespace], h.ShareFrom
	if least == 0 {
		least = defaultShareFrom
	}
	switch {
	case h.Client == nil || all.refused != nil:
		return nil
	case all.shared == nil && all.count < least:
		return nil
	case all.shared == nil:
		all.shared = newSharedWatch(w.ctx, h, w.namespace)
	}
	return all.shared.add(w)
}

// forget keeps newcomers away from a watch that ends. The caller holds mu.
func (h *WatchHub) forget(w *sharedWatch) {
	if all := h.namespaces[w.namespace]; all.shared == w {
		all.shared = nil
	}
}

// refuse has a namespace's locks watched by name for a while. The caller holds mu.
func (h *WatchHub) refuse(namespace string) {
	all := h.namespaces[namespace]
	all.refused = time.AfterFunc(maxWatch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if all.refused = nil; all.count == 0 {
			delete(h.namespaces, namespace)
		}
	})
}
