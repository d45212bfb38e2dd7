package locktest

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Kind is the resource of a lock object.
type Kind string

const (
	// The resources of lock objects.
	ConfigMap Kind = "configmaps"
	Lease     Kind = "leases"
)

// The one object of a Store.
const (
	// Namespace and Name identify the object of a Store.
	Namespace = "istio-system"
	Name      = "istio-leader"
)

// The verbs that locks use.
const (
	Get    = "get"
	Create = "create"
	Update = "update"
	Watch  = "watch"
)

// ErrUnavailable is the error of an API server that starts or stops.
var ErrUnavailable error = apierrors.NewServiceUnavailable("the apiserver is shutting down")

// Event is one stored change of the lock object.
type Event struct {
	// Version is the resourceVersion of the change.
	Version uint64
	// At is the time of the change.
	At time.Time
	// By is the name of the client. It is empty for a change by the test.
	By string
	// Snapshot is the state after the change. Exists is false for a deletion.
	Snapshot k8sresourcelock.Snapshot
}

// Store is one lock object on an in-memory API server.
type Store struct {
	server *apiserver.Server
	kind   Kind
	shared bool // locks share watches

	mu      sync.Mutex
	clients []*apiserver.Client
}

// NewStore returns an empty store. Call it in the bubble that uses it.
func NewStore(kind Kind) *Store { return &Store{server: apiserver.New(), kind: kind} }

// InSameEtcd returns an empty store of another object with the same version counter.
func (s *Store) InSameEtcd(kind Kind) *Store { return &Store{server: s.server, kind: kind} }

// Kind returns the resource of the object.
func (s *Store) Kind() Kind { return s.kind }

// Client returns a new client. The history shows its name.
func (s *Store) Client(name string) *apiserver.Client {
	c := s.server.NewClient(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients = append(s.clients, c)
	return c
}

// Counts returns the number of requests of all clients by verb, including lost requests.
func (s *Store) Counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := map[string]int{}
	for _, c := range s.clients {
		for verb, n := range c.Counts() {
			sum[verb] += n
		}
	}
	return sum
}

// Snapshot returns the current state. It does not count as a request.
func (s *Store) Snapshot() k8sresourcelock.Snapshot {
	obj := s.blank()
	if !s.server.Get(string(s.kind), Namespace, Name, obj) {
		return k8sresourcelock.Snapshot{}
	}
	return snapshotOf(obj)
}

// Version returns the current value of the version counter.
func (s *Store) Version() uint64 { return s.server.Version() }

// History returns all changes, oldest first.
func (s *Store) History() (events []Event) {
	for _, e := range s.server.History(string(s.kind), Namespace, Name) {
		snap := k8sresourcelock.Snapshot{ResourceVersion: e.Object.GetResourceVersion()}
		if e.Kind != watch.Deleted {
			obj := s.blank()
			e.Decode(obj)
			snap = snapshotOf(obj)
		}
		events = append(events, Event{Version: e.Version, At: e.At, By: e.By, Snapshot: snap})
	}
	return events
}

func snapshotOf(obj apiserver.Object) k8sresourcelock.Snapshot {
	if lease, ok := obj.(*coordinationv1.Lease); ok {
		return k8sresourcelock.LeaseSnapshot(lease)
	}
	return k8sresourcelock.ConfigMapSnapshot(obj.(*corev1.ConfigMap))
}

func (s *Store) blank() apiserver.Object {
	meta := metav1.ObjectMeta{Namespace: Namespace, Name: Name}
	if s.kind == Lease {
		return &coordinationv1.Lease{ObjectMeta: meta}
	}
	return &corev1.ConfigMap{ObjectMeta: meta}
}

// WriteOther writes another object of the same resource. Only watches without a name selector show it.
func (s *Store) WriteOther() {
	obj := s.blank()
	obj.SetName("other-object")
	s.server.Put(obj)
}

// Delete deletes the object and reports whether it existed.
func (s *Store) Delete() bool { return s.server.Delete(string(s.kind), Namespace, Name) }

// Backup saves the current state.
func (s *Store) Backup() apiserver.Backup { return s.server.Backup() }

// Restore restores an earlier state of all objects of the etcd.
func (s *Store) Restore(b apiserver.Backup) { s.server.Restore(b) }
