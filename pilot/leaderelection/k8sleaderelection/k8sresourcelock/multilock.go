package k8sresourcelock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// MultiLock holds two locks together, for moving an election from one lock type to another. The primary is the old
// type (ConfigMap), the secondary is the new type (Lease). Each of them excludes candidates that use only that
// type. Never run candidates that use only the primary together with candidates that use only the secondary.
//
// A Snapshot presents both objects as one lock. Its Parts describe each object. A record is written to the primary
// and then to the secondary. It is acknowledged when both writes are. A write that changes annotations only (for
// example a handover request) changes the object with the selected record.
//
// Both locks must implement Versioned. If one of them cannot be watched, the elector polls. Use each MultiLock for
// one elector only.
type MultiLock struct {
	// Primary is the lock of the old type. Secondary is the lock of the new type.
	Primary, Secondary Interface

	mem pairMemory
}

var (
	_ Versioned = (*MultiLock)(nil)
	_ Annotated = (*MultiLock)(nil)

	_ Subscribable = (*MultiLock)(nil)
)

// Pair contains both objects of a MultiLock. It is the Object of their Snapshot.
type Pair struct {
	// Primary and Secondary are the snapshots of the two objects.
	Primary, Secondary Snapshot
}

func (p *Pair) half(h core.Half) *Snapshot {
	if h == core.Primary {
		return &p.Primary
	}
	return &p.Secondary
}

// GetObjectKind implements runtime.Object. A Pair has no kind.
func (p *Pair) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (p *Pair) DeepCopyObject() runtime.Object {
	c := *p
	for _, s := range []*Snapshot{&c.Primary, &c.Secondary} {
		if s.Object != nil {
			s.Object = s.Object.DeepCopyObject()
		}
	}
	return &c
}

// halves returns both locks as Versioned, primary first.
func (l *MultiLock) halves() (halves [2]Versioned, err error) {
	for i, half := range []Interface{l.Primary, l.Secondary} {
		versioned, ok := half.(Versioned)
		if !ok {
			return halves, errors.New("MultiLock: Primary and Secondary must implement Versioned, as the locks of this package do")
		}
		halves[i] = versioned
	}
	return halves, nil
}

// Validate returns all errors in both locks. It sends no request.
func (l *MultiLock) Validate() error {
	halves, err := l.halves()
	if err != nil {
		return err
	}
	var errs []error
	for _, half := range halves {
		if v, ok := half.(interface{ Validate() error }); ok {
			errs = append(errs, v.Validate())
		}
	}
	if l.Primary.Identity() != l.Secondary.Identity() || keyOf(l.Primary) != keyOf(l.Secondary) {
		errs = append(errs, fmt.Errorf("MultiLock: Primary is of candidate %q (key %q), Secondary of candidate %q (key %q). Use one identity and key",
			l.Primary.Identity(), keyOf(l.Primary), l.Secondary.Identity(), keyOf(l.Secondary)))
	}
	return errors.Join(errs...)
}

// Read implements Versioned. It reads the primary first. If the objects change in between, the primary is outdated
// and no write can be based on it.
func (l *MultiLock) Read(ctx context.Context) (Snapshot, error) {
	halves, err := l.halves()
	if err != nil {
		return Snapshot{}, err
	}
	for i, half := range halves {
		view, _ := l.mem.state()
		snap, err := half.Read(ctx)
		if err != nil {
			return Snapshot{}, err
		}
		if err := l.mem.applyRead(core.Half(i), snap, view.Changes(core.Half(i))); err != nil {
			return Snapshot{}, err
		}
	}
	view, objects := l.mem.state()
	return combine(view, objects, l.Identity()), nil
}

// Write implements Versioned. If IsConflict reports true for the error, an object has changed since base and
// nothing was written. After the primary was written, IsConflict reports false, even if the secondary has changed.
// The caller must then call Read.
func (l *MultiLock) Write(ctx context.Context, base Snapshot, record LeaderElectionRecord, annotations map[string]string) (Snapshot, error) {
	w, err := l.write(base, record, annotations)
	switch {
	case err != nil:
		return Snapshot{}, err
	case record.HolderIdentity != "" && equality.Semantic.DeepEqual(base.Record, record):
		return w.annotate(ctx)
	}
	return w.both(ctx)
}

// DryRun returns an error if the API server would reject the record on one of the objects. Nothing is written.
func (l *MultiLock) DryRun(ctx context.Context, base Snapshot, record LeaderElectionRecord, annotations map[string]string) error {
	w, err := l.write(base, record, annotations)
	if err != nil {
		return err
	}
	for _, h := range []core.Half{core.Primary, core.Secondary} {
		if r, ok := w.halves[h].(dryRunner); ok {
			if err := r.DryRun(ctx, *w.base.half(h), record, annotations); err != nil {
				return err
			}
		}
	}
	return nil
}

// Annotate stores exactly these annotations on the object with the selected record.
func (l *MultiLock) Annotate(ctx context.Context, base Snapshot, annotations map[string]string) (Snapshot, error) {
	w, err := l.write(base, base.Record, annotations)
	if err != nil {
		return Snapshot{}, err
	}
	if !base.Exists {
		return Snapshot{}, l.wrap("annotate", errNoObject)
	}
	return w.annotate(ctx)
}

// write prepares a write with this base.
func (l *MultiLock) write(base Snapshot, record LeaderElectionRecord, annotations map[string]string) (w pairWrite, err error) {
	w = pairWrite{lock: l, record: record, annotations: annotations}
	if w.halves, err = l.halves(); err != nil {
		return w, err
	}
	if base.Exists {
		pair, ok := base.Object.(*Pair)
		if !ok {
			return w, fmt.Errorf("lock %s: base of the write is a %T", l.Describe(), base.Object)
		}
		if base.UID != pair.Secondary.UID || base.ResourceVersion != pair.Secondary.ResourceVersion {
			return w, fmt.Errorf("lock %s: the base of the write has resourceVersion %q and UID %q, which are not its secondary's",
				l.Describe(), base.ResourceVersion, base.UID)
		}
		w.base = *pair
	}
	w.PairWrite = core.PairWrite{Self: l.Identity(), Record: coreRecord(record)}
	w.Base, err = corePair(w.base)
	return w, err
}

// Get returns the record of the lock, and bytes that differ if one of the objects has changed. The error is
// NotFound if neither object exists, and wraps ErrUnreadable if a record cannot be read. Without a record it
// returns a zero record, nil bytes and no error.
func (l *MultiLock) Get(ctx context.Context) (*LeaderElectionRecord, []byte, error) {
	return l.plain().get(ctx)
}

// Create creates both objects. It returns an error if the primary exists.
func (l *MultiLock) Create(ctx context.Context, ler LeaderElectionRecord) error {
	return l.plain().create(ctx, ler)
}

// Update replaces the record of the objects that the last Get, Create or Update returned. If IsConflict reports
// true for the error, they have changed since then and nothing was written. After any other error, the primary may
// have been written: call Get.
func (l *MultiLock) Update(ctx context.Context, ler LeaderElectionRecord) error {
	return l.plain().update(ctx, ler)
}

func (l *MultiLock) plain() plain {
	absent := apierrors.NewNotFound(schema.GroupResource{Resource: "locks"}, l.Describe())
	return plain{lock: l, base: &l.mem.base, absent: absent, wrap: l.wrap}
}

func (l *MultiLock) wrap(verb string, err error) error {
	return fmt.Errorf("lock %s: %s: %w", l.Describe(), verb, err)
}

// RecordEvent records an Event about each of the two objects.
func (l *MultiLock) RecordEvent(s string) {
	for _, half := range l.present() {
		half.RecordEvent(s)
	}
}

// RecordWarning implements Warning. It uses RecordEvent for a lock that does not implement Warning.
func (l *MultiLock) RecordWarning(s string) {
	for _, half := range l.present() {
		if w, ok := half.(Warning); ok {
			w.RecordWarning(s)
		} else {
			half.RecordEvent(s)
		}
	}
}

// present returns the locks that are not nil.
func (l *MultiLock) present() []Interface {
	return slices.DeleteFunc([]Interface{l.Primary, l.Secondary}, func(half Interface) bool { return half == nil })
}

// Identity returns the identity of the candidate. It is empty if Primary is nil.
func (l *MultiLock) Identity() string {
	if l.Primary == nil {
		return ""
	}
	return l.Primary.Identity()
}

// Key returns the rank of the candidate. It is empty if Primary is nil.
func (l *MultiLock) Key() string {
	return keyOf(l.Primary)
}

// Describe returns "namespace/name" of the primary.
func (l *MultiLock) Describe() string {
	if l.Primary == nil {
		return ""
	}
	return l.Primary.Describe()
}
