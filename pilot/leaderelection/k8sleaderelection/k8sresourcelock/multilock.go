package k8sresourcelock

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// MultiLock holds two locks together, for moving an election from one kind of object
// to another: the primary is the kind that it comes from (ConfigMap), the secondary
// the one that it goes to (Lease). Each of them excludes the candidates that use that
// one alone, as long as no two candidates use different ones alone.
//
// The two are shown as one Snapshot, whose Parts name both. A record is written to the
// primary, guarded, and then to the secondary; it is acknowledged when both are. A write that
// leaves the record as it is (a challenger's request) goes to the one object whose record is
// shown.
//
// Both locks have to be Versioned; without Watchable ones it is polled. One MultiLock
// serves one elector.
type MultiLock struct {
	Primary, Secondary Interface

	mem pairMemory
}

var (
	_ Versioned = (*MultiLock)(nil)
	_ Annotated = (*MultiLock)(nil)

	_ Subscribable = (*MultiLock)(nil)
)

// Pair is the two objects of a MultiLock; it is the Object of its Snapshots.
type Pair struct{ Primary, Secondary Snapshot }

func (p *Pair) half(h core.Half) *Snapshot {
	if h == core.Primary {
		return &p.Primary
	}
	return &p.Secondary
}

// GetObjectKind makes a Pair a runtime.Object; it has no kind of its own.
func (p *Pair) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject makes a Pair a runtime.Object.
func (p *Pair) DeepCopyObject() runtime.Object {
	c := *p
	for _, s := range []*Snapshot{&c.Primary, &c.Secondary} {
		if s.Object != nil {
			s.Object = s.Object.DeepCopyObject()
		}
	}
	return &c
}

// halves are the two locks, versioned.
func (l *MultiLock) halves() (primary, secondary Versioned, err error) {
	primary, ok := l.Primary.(Versioned)
	secondary, ok2 := l.Secondary.(Versioned)
	if !ok || !ok2 {
		return nil, nil, errors.New("a MultiLock needs a Primary and a Secondary that are Versioned, as the locks of this package are")
	}
	return primary, secondary, nil
}

// Validate reports every mistake in the two locks; it sends no request.
func (l *MultiLock) Validate() error {
	primary, secondary, err := l.halves()
	if err != nil {
		return err
	}
	var errs []error
	for _, half := range []Versioned{primary, secondary} {
		if v, ok := half.(interface{ Validate() error }); ok {
			errs = append(errs, v.Validate())
		}
	}
	if primary.Identity() != secondary.Identity() || primary.Key() != secondary.Key() {
		errs = append(errs, fmt.Errorf("the locks of a MultiLock have to be one candidate's, not those of %q (%q) and %q (%q)",
			primary.Identity(), primary.Key(), secondary.Identity(), secondary.Key()))
	}
	return errors.Join(errs...)
}

// Read implements Versioned. It asks for the primary first: a picture whose halves are
// of different moments then has an outdated primary, and no write can be based on that.
func (l *MultiLock) Read(ctx context.Context) (Snapshot, error) {
	primary, secondary, err := l.halves()
	if err != nil {
		return Snapshot{}, err
	}
	for i, half := range []Versioned{primary, secondary} {
		sight, _ := l.mem.known()
		snap, err := half.Read(ctx)
		if err != nil {
			return Snapshot{}, err
		}
		if err := l.mem.answered(core.Half(i), snap, sight.Changes(core.Half(i))); err != nil {
			return Snapshot{}, err
		}
	}
	sight, objects := l.mem.known()
	return combine(sight, objects, l.Identity()), nil
}

// Write implements Versioned. An error that IsConflict reports means that an object has
// changed since base, and nothing was written. An error after the primary was written is
// never such a one, even where the secondary had changed: Read what is stored.
func (l *MultiLock) Write(ctx context.Context, base Snapshot, record LeaderElectionRecord, notes map[string]string) (Snapshot, error) {
	w, err := l.write(base, record, notes)
	switch {
	case err != nil:
		return Snapshot{}, err
	case record.HolderIdentity != "" && sameRecord(base.Record, record):
		return w.annotate(ctx)
	}
	return w.both(ctx)
}

// Annotate writes exactly these notes beside the record that base shows, on the object
// that shows it.
func (l *MultiLock) Annotate(ctx context.Context, base Snapshot, notes map[string]string) (Snapshot, error) {
	w, err := l.write(base, base.Record, notes)
	if err != nil {
		return Snapshot{}, err
	}
	if !base.Exists {
		return Snapshot{}, l.wrap("annotate", errNoObject)
	}
	return w.annotate(ctx)
}

// write is a write that is decided on base.
func (l *MultiLock) write(base Snapshot, record LeaderElectionRecord, notes map[string]string) (w pairWrite, err error) {
	w = pairWrite{lock: l, record: record, notes: notes}
	if w.primary, w.secondary, err = l.halves(); err != nil {
		return w, err
	}
	if base.Exists {
		pair, ok := base.Object.(*Pair)
		if !ok {
			return w, fmt.Errorf("lock %s: the base of the write is a %T", l.Describe(), base.Object)
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

// Get returns the record that the two objects show together, and bytes that differ after a
// change of either. The error is a NotFound when there is neither object, and wraps
// ErrUnreadable when a record of the two cannot be read. Objects without a record give a zero
// record, nil bytes and no error.
func (l *MultiLock) Get(ctx context.Context) (*LeaderElectionRecord, []byte, error) {
	return l.plain().get(ctx)
}

// Create makes both objects; it fails when the primary is there.
func (l *MultiLock) Create(ctx context.Context, ler LeaderElectionRecord) error {
	return l.plain().create(ctx, ler)
}

// Update replaces the record of the two objects that Get, Create or Update saw last. An error
// that IsConflict reports means that they have changed since, and nothing was written.
// Any other may mean that the primary alone was written: call Get.
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

// RecordEvent writes an Event about each of the two objects.
func (l *MultiLock) RecordEvent(s string) {
	for _, half := range []Interface{l.Primary, l.Secondary} {
		if half != nil {
			half.RecordEvent(s)
		}
	}
}

// RecordWarning implements Warning, where the two locks do.
func (l *MultiLock) RecordWarning(s string) {
	for _, one := range []Interface{l.Primary, l.Secondary} {
		if w, ok := one.(Warning); ok {
			w.RecordWarning(s)
			continue
		}
		if one != nil {
			one.RecordEvent(s)
		}
	}
}

// Identity is the candidate's own; empty without a Primary.
func (l *MultiLock) Identity() string {
	if l.Primary == nil {
		return ""
	}
	return l.Primary.Identity()
}

// Key is the candidate's rank as it is written into the locks.
func (l *MultiLock) Key() string {
	if l.Primary == nil {
		return ""
	}
	return l.Primary.Key()
}

// Describe is the primary's "namespace/name".
func (l *MultiLock) Describe() string {
	if l.Primary == nil {
		return ""
	}
	return l.Primary.Describe()
}
