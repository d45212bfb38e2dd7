package k8sresourcelock_test

import (
	"context"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// A candidate that asks for the lock has it rehearsed first that it may write the secondary: as it
// is there or, where no record is, as its own. What others ask for, or what stands already, is only
// written down.
func TestMultiLockRehearsesARequest(t *testing.T) {
	const key = k8sresourcelock.HandoverRequestAnnotation
	mine := map[string]string{key: `{"identity":"b"}`}
	for name, x := range map[string]struct {
		absent  bool // the secondary
		harm    func(secondary *locktest.Store)
		notes   map[string]string
		stands  map[string]string
		refused bool
	}{
		"one's own":                        {notes: mine, refused: true},
		"one's own, the secondary absent":  {absent: true, notes: mine, refused: true},
		"one's own, the secondary emptied": {harm: (*locktest.Store).Empty, notes: mine, refused: true},
		"one's own, which stands":          {notes: mine, stands: mine},
		"another's":                        {notes: map[string]string{key: `{"identity":"c"}`}},
		"what cannot be read":              {notes: map[string]string{key: `{`}},
		"none":                             {notes: map[string]string{}},
	} {
		for _, may := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, may %v", name, may), func(t *testing.T) {
				p := newPairTrial(t)
				if !x.absent {
					p.held()
				}
				p.Primary.Put("c", termOf("c", 4, 0)) // a replica of the first step leads
				for key, value := range x.stands {
					p.Primary.Annotate(key, value)
				}
				if x.harm != nil {
					x.harm(p.Secondary)
				}
				base := p.read()
				first, second := p.Primary.Snapshot().ResourceVersion, p.Secondary.Snapshot().ResourceVersion
				if !may {
					p.lock.Secondary.Forbid(locktest.Create, locktest.Update)
				}
				_, err := p.lock.Annotate(t.Context(), base, x.notes)
				if refused := x.refused && !may; apierrors.IsForbidden(err) != refused || !refused && err != nil {
					t.Fatalf("error %v", err)
				}
				if written := p.Primary.Snapshot().ResourceVersion != first; written && err != nil {
					t.Error("it was refused, and written")
				}
				if got := p.Primary.Snapshot().Annotations[key]; err == nil && got != x.notes[key] {
					t.Errorf("the request is %q", got)
				}
				if p.Secondary.Snapshot().ResourceVersion != second {
					t.Error("the secondary was written")
				}
			})
		}
	}
}

// rehearsed keeps the records whose write it was asked for to rehearse.
type rehearsed struct {
	locktest.Locker
	records []k8sresourcelock.LeaderElectionRecord
}

func (r *rehearsed) Rehearse(_ context.Context, _ k8sresourcelock.Snapshot, record k8sresourcelock.LeaderElectionRecord, _ map[string]string) error {
	r.records = append(r.records, record)
	return nil
}

// What a request rehearses is the record that the secondary has, also one of the shortest lease, or else one's own
// that could stand there. A secondary that rehearses nothing is asked nothing.
func TestWhatARequestRehearses(t *testing.T) {
	short := termOf("c", 4, 0)
	short.LeaseDurationSeconds = 1
	for name, x := range map[string]struct {
		put  func(p pairTrial)
		want func(k8sresourcelock.LeaderElectionRecord) bool
	}{
		"a record": {func(p pairTrial) { p.Secondary.Put("c", short) }, func(r k8sresourcelock.LeaderElectionRecord) bool {
			return r == short
		}},
		"none": {func(pairTrial) {}, func(r k8sresourcelock.LeaderElectionRecord) bool {
			return r.HolderIdentity == "b" && r.HolderKey == "stable" && r.LeaderTransitions == 0 && r.LeaseDurationSeconds == 30
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPairTrial(t)
			p.Primary.Put("c", termOf("c", 4, 0))
			x.put(p)
			secondary := &rehearsed{Locker: p.lock.Secondary.Locker}
			lock := &k8sresourcelock.MultiLock{Primary: p.lock.Primary.Locker, Secondary: secondary}
			ask := map[string]string{k8sresourcelock.HandoverRequestAnnotation: `{"identity":"b"}`}
			base, err := lock.Read(t.Context())
			if err == nil {
				_, err = lock.Annotate(t.Context(), base, ask)
			}
			if err != nil || len(secondary.records) != 1 || !x.want(secondary.records[0]) {
				t.Errorf("error %v, rehearsed %+v", err, secondary.records)
			}
			plain := &k8sresourcelock.MultiLock{Primary: p.lock.Primary.Unwatched(), Secondary: p.lock.Secondary.Unwatched()}
			if base, err = plain.Read(t.Context()); err == nil {
				_, err = plain.Annotate(t.Context(), base, map[string]string{k8sresourcelock.HandoverRequestAnnotation: `{"identity":"b","seconds":1}`})
			}
			if err != nil {
				t.Errorf("a secondary that cannot rehearse: %v", err)
			}
		})
	}
}
