package leaderelection

import (
	"errors"
	"fmt"
	"reflect"
	"sync"

	"incumbent.dev/incumbent/internal/leasecandidate"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
)

// rootNamespace is where the webhook of the default revision is named without a
// namespace. Elections watch that one, wherever their locks are, as istiod's do.
const rootNamespace = "istio-system"

// callsAtOnce is how many calls for locks a client has under way. An API server serves
// more on one connection.
const callsAtOnce = 64

// registry finds what the running elections of a client share, by that client.
type registry struct {
	mu      sync.Mutex
	clients map[kube.Client]*shared
}

// alone is for the elections that are in no Set, and for those of the Istio-style constructors in any: these share one
// default watcher per client.
var alone registry

// shared has the client, bound and watches that the running elections of one client share. It lives while one of them runs.
type shared struct {
	locks  *k8sresourcelock.Shared
	client kube.Client // for locks

	in    *registry
	of    kube.Client // nil: others that come with the same one do not find this, since it cannot be a map's key
	users int

	watcher revisions.DefaultWatcher // of Istio-style elections; nil until one runs
	stop    chan struct{}
	running sync.WaitGroup
}

func (r *registry) acquire(client kube.Client) (*shared, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	comparable := reflect.ValueOf(client).Comparable() // a caller's own type need not be
	if comparable && r.clients[client] != nil {
		r.clients[client].users++
		return r.clients[client], nil
	}
	s, err := newShared(client)
	if err != nil {
		return nil, fmt.Errorf("the client for locks: %w", err)
	}
	if comparable {
		if r.clients == nil {
			r.clients = map[kube.Client]*shared{}
		}
		s.of, r.clients[client] = client, s
	}
	s.in, s.users = r, 1
	return s, nil
}

func newShared(client kube.Client) (*shared, error) {
	s := &shared{locks: &k8sresourcelock.Shared{MaxConcurrentCalls: callsAtOnce}, stop: make(chan struct{})}
	if kube.InMemory(client) {
		s.client = client
		return s, nil
	}
	config := client.RESTConfig()
	if config == nil {
		return nil, errors.New("the client that was given has no RESTConfig: make it with kube.NewClient, or give a LockClient")
	}
	var err error
	if s.client, err = kube.NewClient(leasecandidate.WithoutWarnings(k8sresourcelock.ClientConfig(config)), kube.WithOwnConnections()); err != nil {
		return nil, err
	}
	s.locks.Client = s.client.Kube().CoordinationV1()
	return s, nil
}

// defaultWatcher returns the one of all, and starts it for the first.
func (s *shared) defaultWatcher() revisions.DefaultWatcher {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	if s.watcher == nil {
		watcher := revisions.NewDefaultWatcher(s.client, "", rootNamespace)
		s.watcher = watcher
		s.running.Go(func() { watcher.Run(s.stop) })
	}
	return s.watcher
}

// release ends what is shared with its last user.
func (s *shared) release() {
	s.in.mu.Lock()
	s.users--
	last := s.users == 0
	if last && s.of != nil {
		delete(s.in.clients, s.of)
	}
	s.in.mu.Unlock()
	if last {
		close(s.stop)
		s.running.Wait()
		kube.CloseIdleConnections(s.client)
	}
}
