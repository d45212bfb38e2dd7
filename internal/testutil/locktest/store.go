package locktest

import (
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

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

// firstVersion is the first value of the version counter. It soon grows from two digits to three, so that a
// comparison of versions as strings fails.
const firstVersion = 97

// Object is a *corev1.ConfigMap or a *coordinationv1.Lease.
type Object interface {
	runtime.Object
	metav1.Object
}

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

	kind   watch.EventType
	object Object
}

// Store is one lock object on an in-memory API server.
type Store struct {
	kind Kind

	*revisions
	floor    uint64 // versions below are compacted
	made     int    // objects ever created, for their UIDs
	object   Object // nil when absent; replaced, never changed
	history  []Event
	watchers map[*watcher]bool
	clients  []*Client
	shared   bool // locks share watches
}

// revisions is the version counter of all objects of one etcd, with their mutex.
type revisions struct {
	mu      sync.Mutex
	version uint64
}

// NewStore returns an empty store. Call it in the bubble that uses it.
func NewStore(kind Kind) *Store {
	return newStore(kind, &revisions{version: firstVersion})
}

// InSameEtcd returns an empty store of another object with the same version counter.
func (s *Store) InSameEtcd(kind Kind) *Store { return newStore(kind, s.revisions) }

func newStore(kind Kind, etcd *revisions) *Store {
	return &Store{kind: kind, revisions: etcd, floor: firstVersion, watchers: map[*watcher]bool{}}
}

// Kind returns the resource of the object.
func (s *Store) Kind() Kind { return s.kind }

// Snapshot returns the current state. It does not count as a request.
func (s *Store) Snapshot() k8sresourcelock.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return snapshotOf(s.object)
}

// Version returns the current value of the version counter.
func (s *Store) Version() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// History returns all changes, oldest first.
func (s *Store) History() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Event(nil), s.history...)
}

// Requests returns the number of requests of all clients by verb, including lost requests.
func (s *Store) Requests() map[Verb]int {
	s.mu.Lock()
	clients := append([]*Client(nil), s.clients...)
	s.mu.Unlock()
	sum := map[Verb]int{}
	for _, c := range clients {
		for verb, n := range c.Requests() {
			sum[verb] += n
		}
	}
	return sum
}

func snapshotOf(obj Object) k8sresourcelock.Snapshot {
	switch obj := obj.(type) {
	case *corev1.ConfigMap:
		return k8sresourcelock.ConfigMapSnapshot(obj.DeepCopy())
	case *coordinationv1.Lease:
		return k8sresourcelock.LeaseSnapshot(obj.DeepCopy())
	default:
		return k8sresourcelock.Snapshot{}
	}
}

func (s *Store) blank() Object {
	meta := metav1.ObjectMeta{Namespace: Namespace, Name: Name}
	if s.kind == Lease {
		return &coordinationv1.Lease{ObjectMeta: meta}
	}
	return &corev1.ConfigMap{ObjectMeta: meta}
}

func clone(obj Object) Object { return obj.DeepCopyObject().(Object) }

func format(version uint64) string { return strconv.FormatUint(version, 10) }

// put stores obj as the new state. The caller holds mu and must not use obj afterwards.
func (s *Store) put(obj Object, by string) Object {
	s.version++
	kind := watch.Modified
	if s.object == nil {
		kind = watch.Added
		s.made++
		obj.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", s.made)))
		obj.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	} else {
		obj.SetUID(s.object.GetUID())
		obj.SetCreationTimestamp(s.object.GetCreationTimestamp())
	}
	obj.SetResourceVersion(format(s.version))
	s.object = obj
	s.publish(Event{Version: s.version, At: time.Now(), By: by, Snapshot: snapshotOf(obj), kind: kind, object: obj})
	return obj
}

// remove deletes the object. The caller holds mu. The object must exist.
func (s *Store) remove(by string) {
	s.version++
	last := clone(s.object)
	last.SetResourceVersion(format(s.version))
	s.object = nil
	gone := k8sresourcelock.Snapshot{ResourceVersion: format(s.version)}
	s.publish(Event{Version: s.version, At: time.Now(), By: by, Snapshot: gone, kind: watch.Deleted, object: last})
}

func (s *Store) publish(e Event) {
	s.history = append(s.history, e)
	for w := range s.watchers {
		w.add(e)
	}
}

// otherName is the name of another object in the namespace.
const otherName = "other-object"

// WriteOther writes another object of the same resource. Only watches without a name selector show it.
func (s *Store) WriteOther() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	obj := s.blank()
	obj.SetName(otherName)
	obj.SetResourceVersion(format(s.version))
	for w := range s.watchers {
		if w.others {
			w.add(Event{Version: s.version, At: time.Now(), kind: watch.Modified, object: obj})
		}
	}
}

func (s *Store) watching() map[*watcher]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.watchers)
}
