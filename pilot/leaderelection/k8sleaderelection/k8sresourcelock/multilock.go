package k8sresourcelock

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// MultiLock holds two locks together, for moving an election from one kind of object
// to another: the primary is the kind that it comes from (ConfigMap), the secondary
// the one that it goes to (Lease). Each of them excludes the candidates that use that
// one alone, as long as no two candidates use different ones alone.
//
// The two are shown as one Snapshot (see combine), whose UID and ResourceVersion are
// "primary+secondary". A record is written to the primary, guarded, and then to the
// secondary; it is acknowledged when both are. A write that leaves the record as it is
// (a challenger's request) goes to the one object whose record is shown.
//
// Both locks have to be Versioned; without Watchable ones it is polled. One MultiLock
// serves one elector.
type MultiLock struct {
	Primary, Secondary Interface

	mem pairMemory
}

var (
	_ Versioned = (*MultiLock)(nil)
	_ Watchable = (*MultiLock)(nil)
	_ Annotated = (*MultiLock)(nil)
)

// Pair is what Snapshot.Object holds for a MultiLock.
type Pair struct{ Primary, Secondary Snapshot }

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

// maxAmends bounds how often a write to the secondary is begun anew because of what
// others wrote there meanwhile.
const maxAmends = 4

// halves are the two locks, versioned.
func (l *MultiLock) halves() (primary, secondary Versioned, err error) {
	primary, ok := l.Primary.(Versioned)
	secondary, ok2 := l.Secondary.(Versioned)
	if !ok || !ok2 {
		return nil, nil, errors.New("a MultiLock needs a Primary and a Secondary that are Versioned, as the locks of this package are")
	}
	return primary, secondary, nil
}

// Validate reports every mistake in the two locks; it calls nobody.
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
		asked := l.mem.asked(i)
		snap, err := half.Read(ctx)
		if err != nil {
			return Snapshot{}, err
		}
		if err := l.mem.answered(i, snap, asked); err != nil {
			return Snapshot{}, err
		}
	}
	return l.mem.combined(l.Identity()), nil
}

// Write implements Versioned. A conflict is one of the primary: nothing was written.
// Whatever fails once the primary was written leaves open what stands.
func (l *MultiLock) Write(ctx context.Context, base Snapshot, record LeaderElectionRecord, notes map[string]string) (Snapshot, error) {
	primary, secondary, err := l.halves()
	if err != nil {
		return Snapshot{}, err
	}
	pair, err := l.pairOf(base)
	if err != nil {
		return Snapshot{}, err
	}
	if record.HolderIdentity != "" && sameRecord(base.Record, record) {
		return l.annotate(ctx, pair, record, notes)
	}
	w := pairWrite{lock: l, secondary: secondary, base: pair, record: record, notes: notes}
	if err := w.rehearse(ctx); err != nil {
		return Snapshot{}, err
	}
	first, err := primary.Write(ctx, pair.Primary, record, w.notesFor(pair.Secondary))
	if err != nil {
		return Snapshot{}, err
	}
	if err := l.mem.stored(0, first); err != nil {
		return Snapshot{}, err
	}
	second, err := w.second(ctx, first)
	if err != nil {
		return Snapshot{}, unknown(fmt.Errorf("the primary was written, and then: %w", err))
	}
	if err := l.mem.stored(1, second); err != nil {
		return Snapshot{}, unknown(err)
	}
	l.mem.wroteBoth(first, second)
	if l.mem.overtaken(first, second) {
		return Snapshot{}, errors.New("both locks were written, but one has changed since")
	}
	return combine(sideOf(first), sideOf(second), l.Identity()), nil
}

// pairOf is what base was made of.
func (l *MultiLock) pairOf(base Snapshot) (Pair, error) {
	if !base.Exists {
		return Pair{}, nil
	}
	pair, ok := base.Object.(*Pair)
	if !ok {
		return Pair{}, fmt.Errorf("lock %s: the base of the write is a %T", l.Describe(), base.Object)
	}
	if base.ResourceVersion == "" || base.UID == "" {
		return Pair{}, fmt.Errorf("lock %s: the base of the write has resourceVersion %q and UID %q", l.Describe(), base.ResourceVersion, base.UID)
	}
	return *pair, nil
}

// annotate writes notes beside a record that stays as it is, where it is shown. The
// other object's record and notes are somebody else's business.
func (l *MultiLock) annotate(ctx context.Context, pair Pair, record LeaderElectionRecord, notes map[string]string) (Snapshot, error) {
	primary, secondary, err := l.halves()
	if err != nil {
		return Snapshot{}, err
	}
	halves := [2]Versioned{primary, secondary}
	bases := [2]Snapshot{pair.Primary, pair.Secondary}
	i, full := choose(sideOf(pair.Primary), sideOf(pair.Secondary), l.Identity())
	notes = withNote(notes, MultiLockAnnotation, bases[i].Notes[MultiLockAnnotation])
	var next Snapshot
	if half, ok := halves[i].(Annotated); ok {
		next, err = half.Annotate(ctx, bases[i], notes)
	} else {
		next, err = halves[i].Write(ctx, bases[i], record, notes)
	}
	if err != nil {
		return Snapshot{}, err
	}
	if err := l.mem.stored(i, next); err != nil {
		return Snapshot{}, unknown(err)
	}
	bases[i] = next
	if other := 1 - i; full {
		if bases[other], err = l.alignHold(ctx, halves[other], bases[other], record, notes[HoldAnnotation]); err != nil {
			return Snapshot{}, unknown(err)
		}
		if err := l.mem.stored(other, bases[other]); err != nil {
			return Snapshot{}, unknown(err)
		}
	}
	return combine(sideOf(bases[0]), sideOf(bases[1]), l.Identity()), nil
}

// alignHold replaces a hold that the other object of one term shows. Of two that differ the
// newer object's counts, and a label on the one would bring back what an operator has ended.
func (l *MultiLock) alignHold(ctx context.Context, half Versioned, base Snapshot, record LeaderElectionRecord, hold string) (Snapshot, error) {
	lock, ok := half.(Annotated)
	for range maxAmends {
		if is := base.Notes[HoldAnnotation]; !ok || is == "" || is == hold || !sameTerm(base, record) {
			return base, nil
		}
		next, err := lock.Annotate(ctx, base, withNote(base.Notes, HoldAnnotation, hold))
		if !IsConflict(err) {
			return next, err
		}
		if base, err = half.Read(ctx); err != nil {
			return Snapshot{}, err
		}
	}
	return Snapshot{}, fmt.Errorf("the hold was written to one lock, and the other changes too often: %w", ErrConflict)
}

// Annotate writes exactly these notes beside the record that base shows, on the object
// that shows it.
func (l *MultiLock) Annotate(ctx context.Context, base Snapshot, notes map[string]string) (Snapshot, error) {
	pair, err := l.pairOf(base)
	if err != nil {
		return Snapshot{}, err
	}
	if !base.Exists {
		return Snapshot{}, fmt.Errorf("lock %s: annotate: %w", l.Describe(), errNoObject)
	}
	return l.annotate(ctx, pair, base.Record, notes)
}

// unknown is err without the claim that nothing was written.
func unknown(err error) error {
	if IsConflict(err) {
		return errors.New(err.Error()) // not wrapped: that would still say ErrConflict
	}
	return fmt.Errorf("%w: %w", errInPart, err)
}

// Get returns the record and the bytes by which a change of either object shows; a
// NotFound when there is neither.
func (l *MultiLock) Get(ctx context.Context) (*LeaderElectionRecord, []byte, error) {
	snap, err := l.Read(ctx)
	if err != nil {
		return nil, nil, err
	}
	l.mem.setBase(snap)
	if !snap.Exists {
		return nil, nil, fmt.Errorf("lock %s: get: %w", l.Describe(), apierrors.NewNotFound(schema.GroupResource{Resource: "locks"}, l.Describe()))
	}
	if snap.Unreadable != nil {
		return nil, snap.Raw, fmt.Errorf("lock %s: get: %w", l.Describe(), snap.Unreadable)
	}
	return &snap.Record, snap.Raw, nil
}

// Create makes both objects; it fails when the primary is there.
func (l *MultiLock) Create(ctx context.Context, ler LeaderElectionRecord) error {
	snap, err := l.Write(ctx, Snapshot{}, ler, nil)
	if err != nil {
		return err
	}
	l.mem.setBase(snap)
	return nil
}

// Update replaces the record of what Get, Create or Update saw last.
func (l *MultiLock) Update(ctx context.Context, ler LeaderElectionRecord) error {
	base := l.mem.getBase()
	if !base.Exists {
		return fmt.Errorf("lock %s: update: %w", l.Describe(), errNotRead)
	}
	snap, err := l.Write(ctx, base, ler, base.Notes)
	if err != nil {
		return err
	}
	l.mem.setBase(snap)
	return nil
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
