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
	base    base
}

func (m *memory) sawObject(s Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.uid, m.version = s.UID, s.ResourceVersion
}

// base is what Get, Create or Update saw last.
type base struct {
	mu   sync.Mutex
	snap *Snapshot // nil until the first call
}

func (b *base) set(s Snapshot) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.snap = &s
}

func (b *base) get() Snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.snap == nil {
		return Snapshot{}
	}
	return *b.snap
}

// plain serves Get, Create and Update of Interface by Read and Write.
type plain struct {
	lock   Versioned
	base   *base
	absent error // what Get answers without an object
	wrap   func(verb string, err error) error
}

func (a access[T]) plain(l Versioned) plain {
	return plain{lock: l, base: &a.last.base, absent: apierrors.NewNotFound(a.resource, a.meta.Name), wrap: a.wrap}
}

// get serves Interface.Get. An absent lock is a NotFound, as in client-go. An
// unreadable record is an error that wraps ErrUnreadable; the object is remembered
// all the same, so that Update can put a record in its place.
func (p plain) get(ctx context.Context) (*LeaderElectionRecord, []byte, error) {
	snap, err := p.lock.Read(ctx)
	if err != nil {
		return nil, nil, err
	}
	p.base.set(snap)
	if !snap.Exists {
		return nil, nil, p.wrap("get", p.absent)
	}
	if snap.Unreadable != nil {
		return nil, snap.Raw, p.wrap("get", snap.Unreadable)
	}
	return &snap.Record, snap.Raw, nil
}

func (p plain) create(ctx context.Context, record LeaderElectionRecord) error {
	return p.write(ctx, Snapshot{}, record)
}

// update keeps our annotations unread, as any other elector does.
func (p plain) update(ctx context.Context, record LeaderElectionRecord) error {
	base := p.base.get()
	if !base.Exists {
		return p.wrap("update", errNotRead)
	}
	return p.write(ctx, base, record)
}

func (p plain) write(ctx context.Context, base Snapshot, record LeaderElectionRecord) error {
	snap, err := p.lock.Write(ctx, base, record, base.Annotations)
	if err == nil {
		p.base.set(snap)
	}
	return err
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
