package k8sresourcelock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// pairWrite is one record on its way into both objects.
type pairWrite struct {
	core.PairWrite
	lock               *MultiLock
	primary, secondary Versioned
	base               Pair
	record             LeaderElectionRecord
	notes              map[string]string
}

// rehearser is a lock that can ask whether a write would be accepted.
type rehearser interface {
	Rehearse(ctx context.Context, base Snapshot, record LeaderElectionRecord, notes map[string]string) error
}

// rehearse asks, before a claim touches the primary, whether the secondary could be
// written.
func (w pairWrite) rehearse(ctx context.Context) error {
	r, ok := w.secondary.(rehearser)
	if !ok || !w.IsClaim() {
		return nil
	}
	return r.Rehearse(ctx, w.base.Secondary, w.record, w.annotationsFor(w.Base.Primary))
}

// rehearseRequest asks, before a candidate asks the holder to hand over, whether the secondary
// could be written: one that may not write it would be nominated, refuse, and ask again, and each
// time the holder would drain in vain.
func (w pairWrite) rehearseRequest(ctx context.Context, shown Snapshot) error {
	var request struct {
		Identity string `json:"identity"`
	}
	text := w.notes[HandoverRequestAnnotation]
	r, ok := w.secondary.(rehearser)
	if !ok || text == shown.Annotations[HandoverRequestAnnotation] || json.Unmarshal([]byte(text), &request) != nil || request.Identity != w.Self {
		return nil
	}
	base := w.base.Secondary
	record := base.Record                // as it is: a guard of the lock judges a change by what it makes of the holder
	if record.LeaseDurationSeconds < 1 { // no object, or no record that could be written again
		record = w.record
		record.HolderIdentity, record.HolderKey, record.LeaderTransitions = w.Self, w.lock.Key(), base.Record.LeaderTransitions
	}
	return r.Rehearse(ctx, base, record, base.Annotations)
}

// annotationsFor are the notes beside the record on one object, when the other is that.
func (w pairWrite) annotationsFor(other core.Snapshot) map[string]string {
	return withAnnotation(w.notes, MultiLockAnnotation, formatNeeds(w.NeedsAnnotation(other)))
}

// both writes the primary, and then the secondary.
func (w pairWrite) both(ctx context.Context) (Snapshot, error) {
	if err := w.rehearse(ctx); err != nil {
		return Snapshot{}, err
	}
	w.lock.mem.sends(core.Primary, w.Record, w.notes)
	first, err := w.primary.Write(ctx, w.base.Primary, w.record, w.annotationsFor(w.Base.Secondary))
	if err != nil {
		return Snapshot{}, err
	}
	p, err := w.lock.mem.stored(core.Primary, first)
	if err != nil {
		return Snapshot{}, err
	}
	second, err := w.second(ctx, p)
	if err != nil {
		return Snapshot{}, unknown(fmt.Errorf("the primary was written, and then: %w", err))
	}
	s, err := w.lock.mem.stored(core.Secondary, second)
	if err != nil {
		return Snapshot{}, unknown(err)
	}
	if sight, _ := w.lock.mem.known(); sight.IsNewerThan(p.Version, s.Version) {
		return Snapshot{}, errOvertaken
	}
	return combine(core.PairView{Pair: core.Pair{Primary: p, Secondary: s}}, Pair{first, second}, w.Self), nil
}

// maxAmends bounds how often a write to one object is begun anew because of what others
// wrote there meanwhile.
const maxAmends = 4

// second writes the secondary, after the primary holds the record. What others put
// there meanwhile is looked at anew: a request or a hold does not end the write, nor does
// the write undo them. What has been replaced on the primary since counts no more.
func (w pairWrite) second(ctx context.Context, first core.Snapshot) (Snapshot, error) {
	base, notes := w.base.Secondary, w.annotationsFor(first)
	for range maxAmends {
		w.lock.mem.sends(core.Secondary, w.Record, notes)
		next, err := w.secondary.Write(ctx, base, w.record, notes)
		if !IsConflict(err) {
			return next, err
		}
		now, err := w.secondary.Read(ctx)
		if err != nil {
			return Snapshot{}, err
		}
		half, err := w.lock.mem.stored(core.Secondary, now)
		if err != nil {
			return Snapshot{}, err
		}
		if w.MustNotOverwrite(half) {
			return Snapshot{}, fmt.Errorf("the secondary has become another (UID %q, holder %q in term %d): %w",
				now.UID, now.Record.HolderIdentity, now.Record.LeaderTransitions, ErrConflict)
		}
		sight, _ := w.lock.mem.known()
		base, notes = now, withOthers(notes, w.MergeAnnotations(sight, half, coreAnnotations(notes)))
	}
	return Snapshot{}, fmt.Errorf("the secondary changes too often: %w", ErrConflict)
}

// annotate writes notes beside a record that stays as it is, where it is shown. What stands on
// the other object is others' to change, but for the hold.
func (w pairWrite) annotate(ctx context.Context) (Snapshot, error) {
	h, both := w.Base.Select(w.Self)
	if err := w.rehearseRequest(ctx, *w.base.half(h)); err != nil {
		return Snapshot{}, err
	}
	next, err := w.annotateOne(ctx, h)
	if err != nil {
		return Snapshot{}, err
	}
	err = w.take(h, next)
	if err == nil && both {
		err = w.alignHold(ctx, h.Other())
	}
	if err != nil {
		return Snapshot{}, unknown(err)
	}
	return combine(core.PairView{Pair: w.Base}, w.base, w.Self), nil
}

func (w pairWrite) half(h core.Half) Versioned {
	if h == core.Primary {
		return w.primary
	}
	return w.secondary
}

func (w pairWrite) annotateOne(ctx context.Context, h core.Half) (Snapshot, error) {
	base := *w.base.half(h)
	notes := withAnnotation(w.notes, MultiLockAnnotation, base.Annotations[MultiLockAnnotation])
	if lock, ok := w.half(h).(Annotated); ok {
		return lock.Annotate(ctx, base, notes)
	}
	return w.half(h).Write(ctx, base, w.record, notes)
}

// take goes on from what one object has become.
func (w *pairWrite) take(h core.Half, next Snapshot) error {
	half, err := w.lock.mem.stored(h, next)
	if err != nil {
		return err
	}
	*w.base.half(h), *w.Base.Of(h) = next, half
	return nil
}

// alignHold replaces a hold that the other object of one term shows.
func (w *pairWrite) alignHold(ctx context.Context, h core.Half) error {
	annotated, ok := w.half(h).(Annotated)
	for n := 0; ; n++ {
		if !ok || !w.ReplacesHold(*w.Base.Of(h), coreAnnotations(w.notes).Hold) {
			return nil
		}
		base := *w.base.half(h)
		if n == maxAmends {
			return fmt.Errorf("the hold was written to one lock, and the other changes too often: %w", ErrConflict)
		}
		next, err := annotated.Annotate(ctx, base, withAnnotation(base.Annotations, HoldAnnotation, w.notes[HoldAnnotation]))
		if IsConflict(err) {
			next, err = w.half(h).Read(ctx)
		}
		if err == nil {
			err = w.take(h, next)
		}
		if err != nil {
			return err
		}
	}
}

var errOvertaken = errors.New("both locks were written, but one has changed since")

// unknown is err without the claim that nothing was written.
func unknown(err error) error {
	if IsConflict(err) {
		return errors.New(err.Error()) // not wrapped: that would still say ErrConflict
	}
	return fmt.Errorf("%w: %w", errInPart, err)
}
