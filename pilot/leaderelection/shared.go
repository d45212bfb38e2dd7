package leaderelection

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"

	"incumbent.dev/incumbent/internal/hooks"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
)

// rootNamespace is the namespace of the default revision. Elections in all namespaces use it, as in istiod.
const rootNamespace = "istio-system"

// maxCalls is the number of concurrent calls for locks of a client. An API server serves more on one connection.
const maxCalls = 64

// registry contains what the running elections of each client share.
type registry struct {
	mu      sync.Mutex
	clients map[kube.Client]*shared
}

// global is the registry of all elections of the process. Elections with the same client share a connection for their locks, a limit
// of concurrent calls, and one watch per namespace of Leases. Elections of istiod's constructors also share a default watcher.
var global registry

// shared has the parts that the running elections of one client share. It exists while an election runs.
type shared struct {
	locks  *k8sresourcelock.Shared
	client kube.Client // for locks

	in    *registry
	of    kube.Client // nil if the client cannot be a map key; then the elections do not share
	users int

	watcher revisions.DefaultWatcher // for elections of istiod's constructors; nil until one of them runs
	hooks   hooks.Queue              // writes the log of watcher, because release waits for watcher
	stop    chan struct{}
	running sync.WaitGroup
}

func (r *registry) acquire(client kube.Client) (*shared, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	comparable := reflect.ValueOf(client).Comparable() // types of callers may not be
	if comparable && r.clients[client] != nil {
		r.clients[client].users++
		return r.clients[client], nil
	}
	s, err := newShared(client)
	if err != nil {
		return nil, fmt.Errorf("create client for locks: %w", err)
	}
	if comparable {
		if r.clients == nil {
			r.clients = map[kube.Client]*shared{}
		}
		r.clients[client] = s
		s.of = client
	}
	s.in = r
	s.users = 1
	return s, nil
}

func newShared(client kube.Client) (*shared, error) {
	s := &shared{locks: &k8sresourcelock.Shared{MaxConcurrentCalls: maxCalls}, stop: make(chan struct{})}
	if kube.InMemory(client) {
		s.client = client
		return s, nil
	}
	config := client.RESTConfig()
	if config == nil {
		return nil, errors.New("client has no RESTConfig: create it with kube.NewClient, or set LockClient")
	}
	var err error
	if s.client, err = kube.NewClient(config, kube.WithRateLimit(-1, 0), kube.WithOwnConnections()); err != nil {
		return nil, err
	}
	s.locks.Client = s.client.Kube().CoordinationV1()
	return s, nil
}

// defaultWatcher returns the shared default watcher. The first call starts it.
func (s *shared) defaultWatcher() revisions.DefaultWatcher {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	if s.watcher == nil {
		watcher := revisions.NewDefault(s.client, revisions.Config{Namespace: rootNamespace, Logger: s.hooks.Logger(slog.Default())})
		s.watcher = watcher
		s.running.Go(func() { watcher.Run(s.stop) })
	}
	return s.watcher
}

// release removes one user. After the last one it stops everything.
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
