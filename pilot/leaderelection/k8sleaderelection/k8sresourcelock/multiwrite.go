package k8sresourcelock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// pairWrite is a write of one record to both objects.
type pairWrite struct {
	core.PairWrite
	lock        *MultiLock
	halves      [2]Versioned
	base        Pair
	record      LeaderElectionRecord
	annotations map[string]string
}

// dryRunner is a lock that can check whether the API server would accept a write.
type dryRunner interface {
	DryRun(ctx context.Context, base Snapshot, record LeaderElectionRecord, annotations map[string]string) error
}

// dryRun checks that the secondary could be written, before the primary is written to acquire the lock.
func (w pairWrite) dryRun(ctx context.Context) error {
	r, ok := w.halves[core.Secondary].(dryRunner)
	// The first write of a nominee looks like a renewal, because the record names it already.
	if !ok || !w.IsClaim() && !w.Base.Primary.Nominated() {
		return nil
	}
	return r.DryRun(ctx, w.base.Secondary, w.record, w.annotationsFor(w.Base.Primary))
}

// dryRunRequest checks that this candidate could write the secondary, before it requests a handover. Otherwise it
// would be nominated, fail, and repeat its request, and the leader would drain each time for nothing.
func (w pairWrite) dryRunRequest(ctx context.Context, shown Snapshot) error {
	var request struct {
		Identity string `json:"identity"`
	}
	text := w.annotations[HandoverRequestAnnotation]
	r, ok := w.halves[core.Secondary].(dryRunner)
	if !ok || text == shown.Annotations[HandoverRequestAnnotation] || json.Unmarshal([]byte(text), &request) != nil || request.Identity != w.Self {
		return nil
	}
	base := w.base.Secondary
	record := base.Record                // unchanged, because a guard of the lock checks changes of the holder
	if record.LeaseDurationSeconds < 1 { // no valid record to write again
		record = w.record
		record.HolderIdentity, record.HolderKey, record.LeaderTransitions = w.Self, w.lock.Key(), base.Record.LeaderTransitions
	}
	return r.DryRun(ctx, base, record, base.Annotations)
}

// annotationsFor returns the annotations for one object. other is the other object.
func (w pairWrite) annotationsFor(other core.Snapshot) map[string]string {
	return withAnnotation(w.annotations, MultiLockAnnotation, formatNeeds(w.NeedsAnnotation(other)))
}

// both writes the primary and then the secondary.
func (w pairWrite) both(ctx context.Context) (Snapshot, error) {
	if err := w.dryRun(ctx); err != nil {
		return Snapshot{}, err
	}
	w.lock.mem.recordWrite(core.Primary, w.Record, w.annotations)
	first, err := w.halves[core.Primary].Write(ctx, w.base.Primary, w.record, w.annotationsFor(w.Base.Secondary))
	if err != nil {
		return Snapshot{}, err
	}
	p, err := w.lock.mem.apply(core.Primary, first)
	if err != nil {
		return Snapshot{}, err
	}
	second, err := w.writeSecondary(ctx, p)
	if err != nil {
		return Snapshot{}, unknown(fmt.Errorf("write secondary after primary: %w", err))
	}
	s, err := w.lock.mem.apply(core.Secondary, second)
	if err != nil {
		return Snapshot{}, unknown(err)
	}
	if view, _ := w.lock.mem.state(); view.IsNewerThan(p.Version, s.Version) {
		return Snapshot{}, errChangedSince
	}
	return combine(core.PairView{Pair: core.Pair{Primary: p, Secondary: s}}, Pair{first, second}, w.Self), nil
}

// maxRetries limits how often a write to one object is repeated because other writers change it.
const maxRetries = 4

// writeSecondary writes the secondary after the primary. If another writer changed it concurrently, the write is
// repeated on the new state and keeps that writer's request or hold. A request or hold that was replaced on the
// primary is not kept.
func (w pairWrite) writeSecondary(ctx context.Context, first core.Snapshot) (Snapshot, error) {
	base, annotations := w.base.Secondary, w.annotationsFor(first)
	for range maxRetries {
		w.lock.mem.recordWrite(core.Secondary, w.Record, annotations)
		next, err := w.halves[core.Secondary].Write(ctx, base, w.record, annotations)
		if !IsConflict(err) {
			return next, err
		}
		now, err := w.halves[core.Secondary].Read(ctx)
		if err != nil {
			return Snapshot{}, err
		}
		half, err := w.lock.mem.apply(core.Secondary, now)
		if err != nil {
			return Snapshot{}, err
		}
		if w.MustNotOverwrite(half) {
			return Snapshot{}, fmt.Errorf("secondary has changed (UID %q, holder %q, leaderTransitions %d): %w",
				now.UID, now.Record.HolderIdentity, now.Record.LeaderTransitions, ErrConflict)
		}
		view, _ := w.lock.mem.state()
		base, annotations = now, withRequestAndHold(annotations, w.MergeAnnotations(view, half, coreAnnotations(annotations)))
	}
	return Snapshot{}, fmt.Errorf("secondary changes too often: %w", ErrConflict)
}

// annotate writes annotations to the object with the selected record. On the other object it only replaces the
// hold.
func (w pairWrite) annotate(ctx context.Context) (Snapshot, error) {
	h, both := w.Base.Select(w.Self)
	if err := w.dryRunRequest(ctx, *w.base.half(h)); err != nil {
		return Snapshot{}, err
	}
	next, err := w.annotateOne(ctx, h)
	if err != nil {
		return Snapshot{}, err
	}
	err = w.update(h, next)
	if err == nil && both {
		err = w.alignHold(ctx, h.Other())
	}
	if err != nil {
		return Snapshot{}, unknown(err)
	}
	return combine(core.PairView{Pair: w.Base}, w.base, w.Self), nil
}

func (w pairWrite) annotateOne(ctx context.Context, h core.Half) (Snapshot, error) {
	base := *w.base.half(h)
	annotations := withAnnotation(w.annotations, MultiLockAnnotation, base.Annotations[MultiLockAnnotation])
	if lock, ok := w.halves[h].(Annotated); ok {
		return lock.Annotate(ctx, base, annotations)
	}
	return w.halves[h].Write(ctx, base, w.record, annotations)
}

// update makes next the base of the following writes.
func (w *pairWrite) update(h core.Half, next Snapshot) error {
	half, err := w.lock.mem.apply(h, next)
	if err != nil {
		return err
	}
	*w.base.half(h), *w.Base.Of(h) = next, half
	return nil
}

// alignHold replaces the hold on the other object of the same term.
func (w *pairWrite) alignHold(ctx context.Context, h core.Half) error {
	annotated, ok := w.halves[h].(Annotated)
	for n := 0; ; n++ {
		if !ok || !w.ReplacesHold(*w.Base.Of(h), coreAnnotations(w.annotations).Hold) {
			return nil
		}
		base := *w.base.half(h)
		if n == maxRetries {
			return fmt.Errorf("write hold to second lock: it changes too often: %w", ErrConflict)
		}
		next, err := annotated.Annotate(ctx, base, withAnnotation(base.Annotations, HoldAnnotation, w.annotations[HoldAnnotation]))
		if IsConflict(err) {
			next, err = w.halves[h].Read(ctx)
		}
		if err == nil {
			err = w.update(h, next)
		}
		if err != nil {
			return err
		}
	}
}

var errChangedSince = errors.New("both locks were written, but one has changed since then")

// unknown returns err so that IsConflict and IsRefused report false.
func unknown(err error) error {
	if IsConflict(err) {
		return errors.New(err.Error()) // not wrapped, so that IsConflict is false
	}
	return fmt.Errorf("%w: %w", errInPart, err)
}
