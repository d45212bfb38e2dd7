package k8sresourcelock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

var (
	errNoClient = errors.New("the lock has no Client")
	errNoObject = errors.New("there is no object to write notes on")
	errNotRead  = errors.New("nothing was read or created yet: call Get or Create first")
)

// memory is a lock's state between calls. Get, Create and Update need the
// whole object, since their arguments do not say on which state they were decided;
// Read and Write carry it in the Snapshot, and leave here only what an Event needs.
type memory struct {
	mu      sync.Mutex
	uid     types.UID
	version string
	base    *Snapshot // nil until the first call
}

func (m *memory) sawObject(s Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.uid, m.version = s.UID, s.ResourceVersion
}

func (m *memory) setBase(s Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.base = &s
}

func (m *memory) getBase() Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.base == nil {
		return Snapshot{}
	}
	return *m.base
}

// get serves Interface.Get. An absent lock is a NotFound, as in client-go. An
// unreadable record is an error that wraps ErrUnreadable; the object is remembered
// all the same, so that Update can put a record in its place.
func (a access[T]) get(ctx context.Context) (*LeaderElectionRecord, []byte, error) {
	snap, err := a.read(ctx)
	if err != nil {
		return nil, nil, err
	}
	a.last.setBase(snap)
	if !snap.Exists {
		return nil, nil, a.wrap("get", apierrors.NewNotFound(a.resource, a.meta.Name))
	}
	if snap.Unreadable != nil {
		return nil, snap.Raw, a.wrap("get", snap.Unreadable)
	}
	return &snap.Record, snap.Raw, nil
}

func (a access[T]) createPlain(ctx context.Context, record LeaderElectionRecord) error {
	snap, err := a.write(ctx, Snapshot{}, record, nil)
	if err != nil {
		return err
	}
	a.last.setBase(snap)
	return nil
}

// updatePlain keeps our annotations unread, as any other elector does.
func (a access[T]) updatePlain(ctx context.Context, record LeaderElectionRecord) error {
	base := a.last.getBase()
	if !base.Exists {
		return a.wrap("update", errNotRead)
	}
	snap, err := a.write(ctx, base, record, base.Notes)
	if err != nil {
		return err
	}
	a.last.setBase(snap)
	return nil
}

// recordEvent writes an Event about the lock object, as client-go words it.
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
