package k8sresourcelock

import (
	"context"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// defaultShareFrom is ShareFrom when it is not set.
const defaultShareFrom = 4

// WatchHub lets the LeaseLocks of a process share one watch of each namespace, instead
// of one watch and three goroutines for each lock. Set LeaseLock.Hub: Watch then shares
// where it can, and Subscribe needs no goroutine at all.
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

// watch serves LeaseLock.Watch.
func (h *WatchHub) watch(ctx context.Context, a access[*coordinationv1.Lease], from string, up func(), seen func(Snapshot)) (string, error) {
	h.enter(a.meta.Namespace)
	defer h.leave(a.meta.Namespace)
	ready := make(chan struct{}, 1) // room for the one word that there are News
	wake := func() {
		select {
		case ready <- struct{}{}:
		default:
		}
	}
	if sub := h.join(ctx, a.meta.Namespace, a.meta.Name, from, wake); sub != nil {
		resume, shared, err := sub.follow(ctx, a, from, ready, up, seen)
		sub.end()
		switch {
		case err != nil:
			return a.ended(ctx, resume, err)
		case shared:
			return resume, nil
		}
	}
	return a.watch(ctx, from, up, seen)
}

// subscribe serves LeaseLock.Subscribe.
func (h *WatchHub) subscribe(ctx context.Context, namespace, name string, wake func()) *Subscription {
	h.enter(namespace)
	sub := h.join(ctx, namespace, name, "", wake)
	if sub == nil {
		h.leave(namespace)
	}
	return sub
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

// join subscribes somebody who has entered to the namespace's watch. It returns nil
// when a Lease should be watched by its name.
func (h *WatchHub) join(ctx context.Context, namespace, name, from string, wake func()) *Subscription {
	h.mu.Lock()
	defer h.mu.Unlock()
	all, share := h.namespaces[namespace], h.ShareFrom
	if share == 0 {
		share = defaultShareFrom
	}
	switch {
	case h.Client == nil || all.refused != nil:
		return nil
	case all.shared == nil && all.count < share:
		return nil
	case all.shared == nil:
		all.shared = newSharedWatch(ctx, h, namespace, from)
	case from == "" && all.shared.unproven():
		return nil
	}
	return all.shared.add(name, from, wake)
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
