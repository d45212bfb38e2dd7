package k8sresourcelock

import (
	"bytes"
	"context"
	"fmt"
	"maps"
)

// pairWrite is one record on its way into both objects.
type pairWrite struct {
	lock      *MultiLock
	secondary Versioned
	base      Pair
	record    LeaderElectionRecord
	notes     map[string]string
}

// renews reports whether the write goes on with a term that stands in both objects.
func (w pairWrite) renews() bool {
	return sameTerm(w.base.Primary, w.record) && sameTerm(w.base.Secondary, w.record)
}

// claims reports whether the write begins a term of the candidate's own.
func (w pairWrite) claims() bool {
	return w.record.HolderIdentity == w.lock.Identity() && !w.renews()
}

func sameTerm(s Snapshot, r LeaderElectionRecord) bool {
	return s.Raw != nil && s.Unreadable == nil &&
		s.Record.HolderIdentity == r.HolderIdentity && s.Record.LeaderTransitions == r.LeaderTransitions
}

// rehearser is a lock that can ask whether a write would be accepted.
type rehearser interface {
	Rehearse(ctx context.Context, base Snapshot, record LeaderElectionRecord, notes map[string]string) error
}

// rehearse asks, before a claim touches the primary, whether the secondary could be
// written. A candidate that may not write Leases would otherwise take the ConfigMap
// again and again, never lead, and keep everybody else from leading.
func (w pairWrite) rehearse(ctx context.Context) error {
	r, ok := w.secondary.(rehearser)
	if !ok || !w.claims() {
		return nil
	}
	return r.Rehearse(ctx, w.base.Secondary, w.record, w.notesFor(w.base.Primary))
}

// notesFor are the notes beside the record on one object. On the candidate's own they
// say that it needs the other object too.
func (w pairWrite) notesFor(other Snapshot) map[string]string {
	if w.record.HolderIdentity != w.lock.Identity() {
		return w.notes
	}
	return withNote(w.notes, MultiLockAnnotation, multiNote(w.record, string(other.UID)))
}

// othersNotes are written by others than the holder, at any time.
var othersNotes = []string{HandoverRequestAnnotation, HoldAnnotation}

// second writes the secondary, after the primary holds the record. What others put
// there meanwhile is looked at anew: a request or a hold does not end the write, nor does
// the write undo them.
func (w pairWrite) second(ctx context.Context, first Snapshot) (Snapshot, error) {
	base, notes := w.base.Secondary, w.notesFor(first)
	for range maxAmends {
		next, err := w.secondary.Write(ctx, base, w.record, notes)
		if !IsConflict(err) {
			return next, err
		}
		now, err := w.secondary.Read(ctx)
		if err != nil {
			return Snapshot{}, err
		}
		if err := w.lock.mem.stored(1, now); err != nil {
			return Snapshot{}, err
		}
		if err := w.yields(now); err != nil {
			return Snapshot{}, err
		}
		for _, key := range othersNotes {
			if w.renews() && now.Notes[key] != w.base.Secondary.Notes[key] {
				notes = withNote(notes, key, now.Notes[key])
			}
		}
		base = now
	}
	return Snapshot{}, fmt.Errorf("the secondary changes too often: %w", ErrConflict)
}

// yields reports why the record must not be written over what the secondary now shows.
// With the primary ours, nobody who needs both can act. One who needs the secondary
// alone can; and whoever wrote a term that ours does not exceed has come later.
func (w pairWrite) yields(now Snapshot) error {
	was := w.base.Secondary
	if now.Exists != was.Exists || now.UID != was.UID {
		return fmt.Errorf("the secondary was deleted or made anew: %w", ErrConflict)
	}
	if bytes.Equal(now.Raw, was.Raw) && now.Notes[NominatedAnnotation] == was.Notes[NominatedAnnotation] {
		return nil // notes or labels alone
	}
	term := now.Record.LeaderTransitions
	switch standingOf(now) {
	case nobody:
		if w.claims() && term < w.record.LeaderTransitions {
			return nil
		}
	case nominee:
		if w.claims() && term <= w.record.LeaderTransitions {
			return nil
		}
	case half:
		if w.claims() && term < w.record.LeaderTransitions {
			return nil
		}
	case vacant, unreadableRecord, alone:
	}
	return fmt.Errorf("the secondary now shows holder %q in term %d: %w", now.Record.HolderIdentity, term, ErrConflict)
}

// withNote is notes with one more; an empty value leaves it out.
func withNote(notes map[string]string, key, value string) map[string]string {
	notes = maps.Clone(notes)
	if notes == nil {
		notes = map[string]string{}
	}
	notes[key] = value
	if value == "" {
		delete(notes, key)
	}
	return notes
}
