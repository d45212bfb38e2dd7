// Package leaderelection replaces the file pilot/pkg/leaderelection/leaderelection.go of istiod: the same names and fields, with
// incumbent's elections. `make istiod-inside` copies this file into a copy of Istio's module, where Istio's own tests use the
// fields.
package leaderelection

import (
	"context"
	"strings"
	"sync"
	"time"

	"go.uber.org/atomic"
	"istio.io/istio/pilot/pkg/features"
	"istio.io/istio/pkg/kube"
	"istio.io/istio/pkg/log"
	"istio.io/istio/pkg/revisions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	incumbentrevisions "incumbent.dev/incumbent/pkg/revisions"
)

// The names of the locks.
const (
	NamespaceController          = leaderelection.NamespaceController
	ClusterTrustBundleController = leaderelection.ClusterTrustBundleController
	ServiceExportController      = leaderelection.ServiceExportController
	IngressController            = leaderelection.IngressController
	GatewayStatusController      = leaderelection.GatewayStatusController
	StatusController             = leaderelection.StatusController
	AnalyzeController            = leaderelection.AnalyzeController
	GatewayDeploymentController  = leaderelection.GatewayDeploymentController
	InferencePoolController      = leaderelection.InferencePoolController
	NodeUntaintController        = leaderelection.NodeUntaintController
	IPAutoallocateController     = leaderelection.IPAutoallocateController
)

const remoteIstiodPrefix = "^"

// LeaderElection is the part of this process in one election.
type LeaderElection struct {
	namespace, name, electionID, revision string
	perRevision, remote, useLeaseLock     bool
	enabled                               bool
	client                                kubernetes.Interface
	connection                            kube.Client // nil in unit tests
	defaultWatcher                        revisions.DefaultWatcher
	ttl                                   time.Duration
	cycle                                 *atomic.Int32

	functions []func(stop <-chan struct{})
	mu        sync.Mutex
	election  *leaderelection.LeaderElection
}

// AddRunFunction adds a function that runs while this process leads.
func (l *LeaderElection) AddRunFunction(f func(stop <-chan struct{})) *LeaderElection {
	l.functions = append(l.functions, f)
	return l
}

// Run runs the election until stop is closed.
func (l *LeaderElection) Run(stop <-chan struct{}) {
	config := leaderelection.Config{
		Namespace: l.namespace, Identity: l.name, ElectionID: l.electionID, Revision: l.revision, Remote: l.remote,
		Lock: leaderelection.LockTypeConfigMap, Disabled: !l.enabled,
		LeaseDuration: l.ttl, RenewDeadline: l.ttl / 2, RetryPeriod: l.ttl / 4,
	}
	if l.perRevision || l.useLeaseLock {
		config.Lock = leaderelection.LockTypeLease
	}
	if l.perRevision { // its name has the revision already
		config.ElectionID, config.PerRevision = strings.TrimSuffix(l.electionID, "-"+l.revision), true
	}
	if l.defaultWatcher != nil {
		config.DefaultWatcher = watcher{l.defaultWatcher, stop, l.ttl / 4}
		go l.defaultWatcher.Run(stop)
	}
	var connection connection = l.connection
	if l.connection == nil {
		connection, config.LockClient = unit{l.client}, l.client
	}
	election, err := leaderelection.New(connection, config)
	if err != nil {
		panic("LeaderElection creation failed: " + err.Error())
	}
	election.AddRunContext(l.work)
	l.mu.Lock()
	l.election = election
	l.mu.Unlock()
	l.cycle.Inc()
	election.Run(stop)
}

// work runs the functions until all have returned. Then the next cycle begins.
func (l *LeaderElection) work(ctx context.Context) error {
	log.Infof("leader election lock obtained: %v", l.electionID)
	var running sync.WaitGroup
	for _, f := range l.functions {
		running.Go(func() { f(ctx.Done()) })
	}
	<-ctx.Done()
	running.Wait()
	log.Infof("leader election lock lost: %v", l.electionID)
	l.cycle.Inc()
	return nil
}

//lint:ignore U1000 Istio's tests call it.
func (l *LeaderElection) isLeader() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.enabled || l.election != nil && l.election.IsLeader()
}

// NewLeaderElection returns an election with a ConfigMap lock.
func NewLeaderElection(namespace, name, electionID, revision string, client kube.Client) *LeaderElection {
	return newLeaderElection(namespace, name, electionID, revision, client)
}

// NewLeaseLeaderElection returns an election with a Lease lock.
func NewLeaseLeaderElection(namespace, name, electionID, revision string, client kube.Client) *LeaderElection {
	l := newLeaderElection(namespace, name, electionID, revision, client)
	l.useLeaseLock = true
	return l
}

// NewPerRevisionLeaderElection returns an election with a Lease lock for each revision.
func NewPerRevisionLeaderElection(namespace, name, electionID, revision string, client kube.Client) *LeaderElection {
	l := newLeaderElection(namespace, name, electionID, revision, client)
	l.electionID += "-" + l.revision
	l.perRevision = true
	return l
}

// NewLeaderElectionMulticluster returns an election in which remote candidates run outside the cluster of the lock.
func NewLeaderElectionMulticluster(namespace, name, electionID, revision string, remote bool, client kube.Client) *LeaderElection {
	l := newLeaderElection(namespace, name, electionID, revision, client)
	l.remote = remote
	return l
}

func newLeaderElection(namespace, name, electionID, revision string, client kube.Client) *LeaderElection {
	l := &LeaderElection{
		namespace: namespace, name: name, electionID: electionID, revision: revision, connection: client, client: client.Kube(),
		enabled: features.EnableLeaderElection, ttl: leaderelection.DefaultLeaseDuration, cycle: atomic.NewInt32(0),
	}
	if l.enabled {
		l.defaultWatcher = revisions.NewDefaultWatcher(client, revision, "")
	}
	if l.revision == "" {
		l.revision = "default"
	}
	return l
}

// LocationPrioritizedComparison reports whether l outranks a holder with this key.
func LocationPrioritizedComparison(key string, l *LeaderElection) bool {
	own := l.revision
	if l.remote {
		own = remoteIstiodPrefix + own
	}
	return k8sleaderelection.Outranks(own, key, k8sleaderelection.DefaultRevision{Synced: true, Revision: l.defaultWatcher.GetDefault()})
}

// connection is the client that incumbent needs. Istio's kube.Client implements it.
type connection interface {
	Kube() kubernetes.Interface
	Dynamic() dynamic.Interface
	RESTConfig() *rest.Config
}

// unit is the client of a unit test.
type unit struct{ kube kubernetes.Interface }

func (u unit) Kube() kubernetes.Interface { return u.kube }
func (u unit) Dynamic() dynamic.Interface { return nil }
func (u unit) RESTConfig() *rest.Config   { return nil }

// watcher adapts the type of the handlers.
type watcher struct {
	revisions.DefaultWatcher
	stop   <-chan struct{}
	period time.Duration
}

// AddHandler polls the fake watchers of Istio's tests, which panic in AddHandler.
func (w watcher) AddHandler(handler incumbentrevisions.DefaultHandler) {
	defer func() {
		if recover() != nil {
			go w.poll(handler)
		}
	}()
	w.DefaultWatcher.AddHandler(revisions.DefaultHandler(handler))
}

func (w watcher) poll(handler incumbentrevisions.DefaultHandler) {
	ticker := time.NewTicker(w.period)
	defer ticker.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-ticker.C:
			handler(w.GetDefault())
		}
	}
}
