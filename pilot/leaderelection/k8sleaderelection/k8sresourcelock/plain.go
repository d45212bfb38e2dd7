package k8sresourcelock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.uber.org/atomic"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

var (
	errNoClient = errors.New("lock has no Client")
	errNoObject = errors.New("lock object does not exist")
	errNotRead  = errors.New("call Get or Create before Update")
)

// memory is the state that a lock keeps between calls. Get, Create and Update need the complete object, because
// their arguments do not contain a base. For Read and Write it only keeps what an Event needs.
type memory struct {
	mu      sync.Mutex
	uid     types.UID
	version string
	// register is set if the store is unversioned.
	register *register
	// base is the state that Get, Create or Update returned last. It is nil before the first call.
	base atomic.Pointer[Snapshot]
}

func (m *memory) sawObject(s Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.uid, m.version = s.UID, s.ResourceVersion
}

// getRecord implements Interface.Get. If the lock does not exist, the error is NotFound, as in client-go. If the record
// is unreadable, the object is remembered all the same, so that Update can replace the record.
func (a access[T]) getRecord(ctx context.Context) (*LeaderElectionRecord, []byte, error) {
	snap, err := a.read(ctx)
	if err != nil {
		return nil, nil, err
	}
	a.last.base.Store(&snap)
	if !snap.Exists {
		return nil, nil, a.wrap("get", apierrors.NewNotFound(a.resource, a.meta.Name))
	}
	if snap.Unreadable != nil {
		return nil, snap.Raw, a.wrap("get", snap.Unreadable)
	}
	record := snap.Record
	record.Strategy = coordinationv1.CoordinatedLeaseStrategy(snap.Strategy)
	record.PreferredHolder = snap.PreferredHolder
	return &record, snap.Raw, nil
}

// updateRecord implements Interface.Update.
func (a access[T]) updateRecord(ctx context.Context, record LeaderElectionRecord) error {
	base := a.last.base.Load()
	if base == nil || !base.Exists {
		return a.wrap("update", errNotRead)
	}
	return a.writeRecord(ctx, *base, record)
}

// writeRecord preserves the annotations, as other electors do.
func (a access[T]) writeRecord(ctx context.Context, base Snapshot, record LeaderElectionRecord) error {
	snap, err := a.write(ctx, base, record, base.Annotations)
	if err == nil {
		a.last.base.Store(&snap)
	}
	return err
}

// recordEvent records an Event about the lock object with the same text as client-go.
func (a access[T]) recordEvent(kind, s string) {
	if a.config.EventRecorder == nil {
		return
	}
	about := a.blank()
	about.SetNamespace(a.meta.Namespace)
	about.SetName(a.meta.Name)
	a.last.mu.Lock()
	about.SetUID(a.last.uid)
	about.SetResourceVersion(a.last.version)
	a.last.mu.Unlock()
	a.config.EventRecorder.Eventf(about, kind, "LeaderElection", "%s", fmt.Sprintf("%s %s", a.config.Identity, s))
}
