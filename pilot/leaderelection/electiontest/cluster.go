package electiontest

import (
	"log/slog"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
)

// Cluster has the lock of one election in memory, with the compare-and-swap and the watches of an API server.
type Cluster struct {
	store *locktest.Store

	mu      sync.Mutex
	clients map[string]*apiserver.Client
}

// New returns a cluster without a lock object.
func New() *Cluster {
	return &Cluster{store: locktest.NewStore(locktest.Lease), clients: map[string]*apiserver.Client{}}
}

// Election returns the election of a replica that has its objects in a fake clientset, such as *fake.Clientset. As in production, writes of its Client fail
// with gate.ErrNotLeader outside the term. All replicas of a Cluster take part in the same election. Each has its own clientset.
// For another Config, use New of package leaderelection with Config, KubeClient and GateFake.
func (c *Cluster) Election(identity string, clientset interface {
	kubernetes.Interface
	clienttesting.FakeClient
},
) (*leaderelection.LeaderElection, error) {
	election, err := leaderelection.New(KubeClient(clientset), c.Config(identity))
	if err == nil {
		GateFake(election.Gate(), clientset)
	}
	return election, err
}

// Config returns the configuration of a replica, which logs nothing.
func (c *Cluster) Config(identity string) leaderelection.Config {
	return leaderelection.Config{
		Namespace: locktest.Namespace, ElectionID: locktest.Name, Identity: identity,
		LockClient: c.client(identity).Kube(), Clock: Clock(), Logger: slog.New(slog.DiscardHandler),
	}
}

// client returns the connection of a replica.
func (c *Cluster) client(identity string) *apiserver.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clients[identity] == nil {
		c.clients[identity] = c.store.Client(identity)
	}
	return c.clients[identity]
}

// CutOff disconnects a replica from the lock. Its requests get no reply, and its watches are silent.
func (c *Cluster) CutOff(identity string) {
	client := c.client(identity)
	client.MuteWatches(true)
	client.On(func(apiserver.Request) apiserver.Fault {
		return apiserver.Fault{Lose: apiserver.TheRequest, Hang: true}
	})
}

// Reconnect reverts CutOff.
func (c *Cluster) Reconnect(identity string) {
	client := c.client(identity)
	client.On(nil)
	client.MuteWatches(false)
}

// DeleteLock deletes the lock object.
func (c *Cluster) DeleteLock() { c.store.Delete() }

// Overwrite makes another process the holder of the lock. It does not renew.
func (c *Cluster) Overwrite(identity string) {
	record := c.store.Snapshot().Record
	record.HolderIdentity = identity
	record.LeaderTransitions++
	record.LeaseDurationSeconds = int(leaderelection.DefaultLeaseDuration / time.Second)
	c.store.Put(identity, record)
}

// Record returns the record of the lock.
func (c *Cluster) Record() k8sresourcelock.LeaderElectionRecord { return c.store.Snapshot().Record }

// KubeClient returns a client with a fake clientset. It has no dynamic client.
func KubeClient(fake kubernetes.Interface) kube.Client { return kubeClient{fake} }

type kubeClient struct{ fake kubernetes.Interface }

func (c kubeClient) Kube() kubernetes.Interface { return c.fake }

func (kubeClient) Dynamic() dynamic.Interface { return nil }

func (kubeClient) RESTConfig() *rest.Config { return &rest.Config{} }
