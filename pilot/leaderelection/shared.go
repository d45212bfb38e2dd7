package leaderelection

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"sync"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
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

// shared is what the running elections of a client have in common.
var shared = registry{clients: map[kube.Client]*common{}}

type registry struct {
	mu      sync.Mutex
	clients map[kube.Client]*common
}

// common is the lock client of one kube.Client's elections, the watches that their
// Leases share and, for those made by the Istio-style constructors, their default watcher. It lives while one of them runs.
type common struct {
	client kube.Client
	lock   kube.Client
	hub    *k8sresourcelock.WatchHub
	calls  *k8sleaderelection.Dispatcher
	users  int
	// registered: others that come with the same client find this one.
	registered bool

	watcher revisions.DefaultWatcher
	stop    chan struct{}
	running sync.WaitGroup
}

func (r *registry) acquire(client kube.Client) (*common, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	comparable := reflect.ValueOf(client).Comparable() // a caller's own type need not be
	if comparable && r.clients[client] != nil {
		r.clients[client].users++
		return r.clients[client], nil
	}
	c, err := newCommon(client)
	if err != nil {
		return nil, fmt.Errorf("the client for locks: %w", err)
	}
	if comparable {
		c.registered, r.clients[client] = true, c
	}
	c.users++
	return c, nil
}

func newCommon(client kube.Client) (*common, error) {
	c := &common{client: client, stop: make(chan struct{}), calls: k8sleaderelection.NewDispatcher(callsAtOnce)}
	if kube.InMemory(client) {
		c.lock = client
		return c, nil
	}
	config := client.RESTConfig()
	if config == nil {
		return nil, errors.New("the client that was given has no RESTConfig: make it with kube.NewClient, or give a LockClient")
	}
	var err error
	if c.lock, err = kube.NewClient(coordination.Quiet(k8sresourcelock.ClientConfig(config)), kube.WithOwnConnections()); err != nil {
		return nil, err
	}
	c.hub = &k8sresourcelock.WatchHub{Client: c.lock.Kube().CoordinationV1()}
	return c, nil
}

// followDefault returns the watcher of all, and starts it for the first.
func (c *common) followDefault() revisions.DefaultWatcher {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if c.watcher == nil {
		c.watcher = revisions.NewDefaultWatcher(c.lock, "", rootNamespace)
		watcher, stop := c.watcher, c.stop
		c.running.Go(func() { watcher.Run(stop) })
	}
	return c.watcher
}

// release ends what is shared with its last user.
func (c *common) release() {
	shared.mu.Lock()
	c.users--
	last := c.users == 0
	if last && c.registered {
		delete(shared.clients, c.client)
	}
	shared.mu.Unlock()
	if last {
		close(c.stop)
		c.running.Wait()
		kube.CloseIdleConnections(c.lock)
	}
}

// gatedClient is what Client returns, made when it is first asked for.
type gatedClient struct {
	once   sync.Once
	client kube.Client
	err    error
}

func (g *gatedClient) get(l *LeaderElection) (kube.Client, error) {
	g.once.Do(func() { g.client, g.err = kube.Derive(l.client, kube.WithWrapTransport(l.gate.Transport)) })
	return g.client, g.err
}

// unusable is a client whose every request fails.
type unusable struct {
	kube.Client
	err error
}

func (u unusable) RESTConfig() *rest.Config {
	return &rest.Config{Host: "http://" + rootNamespace + ".invalid", Transport: failing{u.err}}
}

func (u unusable) Kube() kubernetes.Interface { return kubernetes.NewForConfigOrDie(u.RESTConfig()) }

func (u unusable) Dynamic() dynamic.Interface { return dynamic.NewForConfigOrDie(u.RESTConfig()) }

type failing struct{ err error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.err }
