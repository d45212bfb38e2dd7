package k8sresourcelock

import (
	"sync"
	"time"

	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// defaultShareFrom is ShareFrom when it is not set.
const defaultShareFrom = 4

// Shared lets many electors of one process, with locks on the same API server, share a bound on calls and a watch for each
// namespace. Give the same one to the electors' configurations and to their LeaseLocks. The zero value shares neither.
// Electors of different API servers need different ones: a server that hangs would delay the calls to the others.
//
// The bound on calls: electors that begin together, or come back together after an outage, would otherwise open
// connection after connection (an API server serves a hundred streams or so on each) and as many goroutines,
// whose stacks the process keeps.
//
// The watch of a namespace's Leases, instead of one watch and three goroutines for each lock, needs the right to watch
// all of them, which cannot be restricted to names. Where it is missing, each lock is watched by its name, and the right
// is tried again after ten minutes. A shared watch runs only while it has users, and of Leases that nobody here watches it
// keeps no more than names and versions. Locks in ConfigMaps have watches of their own: most ConfigMaps of a namespace are
// of other programs, large, and confidential enough that an elector should not be shown them.
type Shared struct {
	// Client, which should be the locks' own, watches namespaces. nil: each lock has a watch of its own.
	Client coordinationv1client.LeasesGetter
	// ShareFrom is how many watches there must be in a namespace before it is watched
	// as a whole. 0 means 4: few locks can be named one by one in a Role.
	ShareFrom int
	// CallsAtOnce is how many calls may be under way; 0 means any number.
	CallsAtOnce int

	calls calls

	mu         sync.Mutex // guards what follows, shared watches included
	namespaces map[string]*watchers
}

// watchers are the watches in one namespace, shared or not.
type watchers struct {
	count int
	// shared is the present watch of the namespace, nil when there is none.
	shared *sharedWatch
	// refused runs while the namespace may not be watched as a whole; nil: it may be.
	refused *time.Timer
}

// addWatch counts one more watch in a namespace.
func (s *Shared) addWatch(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.namespaces == nil {
		s.namespaces = map[string]*watchers{}
	}
	if s.namespaces[namespace] == nil {
		s.namespaces[namespace] = &watchers{}
	}
	s.namespaces[namespace].count++
}

// removeWatch ends what addWatch counted. That a namespace may not be watched outlives the last watch there, which may be
// about to go on by name.
func (s *Shared) removeWatch(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.namespaces[namespace]
	if all.count--; all.count == 0 && all.refused == nil {
		delete(s.namespaces, namespace)
	}
}

// join gives one that was counted a share in the namespace's watch. It returns nil when the Lease should be watched
// by its name.
func (s *Shared) join(w *lockWatch) *share {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, least := s.namespaces[w.namespace], s.ShareFrom
	if least == 0 {
		least = defaultShareFrom
	}
	switch {
	case s.Client == nil || all.refused != nil:
		return nil
	case all.shared == nil && all.count < least:
		return nil
	case all.shared == nil:
		all.shared = newSharedWatch(w.ctx, s, w.namespace)
	}
	return all.shared.add(w)
}

// forget keeps newcomers away from a watch that ends. The caller holds mu.
func (s *Shared) forget(w *sharedWatch) {
	if all := s.namespaces[w.namespace]; all.shared == w {
		all.shared = nil
	}
}

// refuse has a namespace's locks watched by name until maxWatch has passed. The caller holds mu.
func (s *Shared) refuse(namespace string) {
	all := s.namespaces[namespace]
	all.refused = time.AfterFunc(maxWatch, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if all.refused = nil; all.count == 0 {
			delete(s.namespaces, namespace)
		}
	})
}
