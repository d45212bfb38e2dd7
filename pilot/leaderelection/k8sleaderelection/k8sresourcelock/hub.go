package k8sresourcelock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// defaultShareFrom is ShareFrom when it is not set.
const defaultShareFrom = 4

// WatchHub lets the LeaseLocks of a process share one watch of each namespace, instead
// of one watch and two goroutines for each lock. Set LeaseLock.Hub; nothing else
// changes for those who call Watch.
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

// errNotShared ends what was begun on a namespace that may not be watched as a whole.
var errNotShared = errors.New("the namespace may not be watched as a whole")

// watch serves LeaseLock.Watch.
func (h *WatchHub) watch(ctx context.Context, a access[*coordinationv1.Lease], from string, up func(), seen func(Snapshot)) (string, error) {
	sub := h.enter(ctx, a.meta.Namespace, a.meta.Name, from)
	defer h.leave(a.meta.Namespace)
	if sub == nil {
		return a.watch(ctx, from, up, seen)
	}
	resume, err := sub.follow(ctx, a, from, up, seen)
	h.unsubscribe(sub)
	if errors.Is(err, errNotShared) {
		return a.watch(ctx, from, up, seen)
	}
	if err != nil {
		return a.ended(ctx, resume, err)
	}
	return resume, nil
}

// enter counts a watcher, and subscribes it to the namespace's watch unless it should
// watch by name: then it returns nil.
func (h *WatchHub) enter(ctx context.Context, namespace, name, from string) *subscriber {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.namespaces == nil {
		h.namespaces = map[string]*watchers{}
	}
	all := h.namespaces[namespace]
	if all == nil {
		all = &watchers{}
		h.namespaces[namespace] = all
	}
	all.count++
	share := h.ShareFrom
	if share == 0 {
		share = defaultShareFrom
	}
	if h.Client == nil || all.refused != nil || all.shared == nil && all.count < share {
		return nil
	}
	if all.shared == nil {
		all.shared = newSharedWatch(ctx, h, namespace, from)
	}
	if from == "" && all.shared.unproven() {
		return nil
	}
	sub := &subscriber{of: all.shared, name: name, wake: make(chan struct{}, 1)}
	sub.late = from != "" && !sub.of.joinable(name, from)
	sub.of.subscribers[name] = append(sub.of.subscribers[name], sub)
	return sub
}

// leave ends what enter counted. What a namespace has comes to its end with its last
// watcher.
func (h *WatchHub) leave(namespace string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.namespaces[namespace]
	if all.count--; all.count > 0 {
		return
	}
	if all.refused != nil {
		all.refused.Stop()
	}
	delete(h.namespaces, namespace)
}

// unsubscribe takes a subscriber out. The last one ends the shared watch, and waits
// for that.
func (h *WatchHub) unsubscribe(sub *subscriber) {
	w := sub.of
	h.mu.Lock()
	rest := slices.DeleteFunc(w.subscribers[sub.name], func(s *subscriber) bool { return s == sub })
	w.subscribers[sub.name] = rest
	if len(rest) == 0 {
		delete(w.subscribers, sub.name)
	}
	last := len(w.subscribers) == 0
	if last {
		h.forget(w)
	}
	h.mu.Unlock()
	if last {
		w.cancel()
		<-w.done
	}
}

// forget keeps newcomers away from a watch that ends. The caller holds mu.
func (h *WatchHub) forget(w *sharedWatch) {
	if all := h.namespaces[w.namespace]; all != nil && all.shared == w {
		all.shared = nil
	}
}

// refuse has a namespace's locks watched by name for a while. The caller holds mu.
func (h *WatchHub) refuse(namespace string) {
	all := h.namespaces[namespace]
	if all == nil || all.refused != nil {
		return
	}
	all.refused = time.AfterFunc(maxWatch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		all.refused = nil
	})
}
