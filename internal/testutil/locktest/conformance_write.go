package locktest

import (
	"bytes"
	"context"
	"errors"
	"math"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

var readChecks = []check{
	{"read returns the written state", func(t *trial) {
		a, b := t.Lock("pod-a", "stable"), t.Lock("pod-b", "canary")
		if snap := t.must(b.Read(t.ctx)); snap.Exists || snap.UID != "" || snap.Raw != nil || snap.Object != nil {
			t.Errorf("absent: %+v", snap)
		}
		notes := map[string]string{record.MarkerAnnotation: "v1 pod-a 1"}
		written := t.must(a.Write(t.ctx, k8sresourcelock.Snapshot{}, recordOf(a, 1), notes))
		read := t.must(b.Read(t.ctx))
		for _, snap := range []k8sresourcelock.Snapshot{written, read} {
			t.wantRecord(snap, recordOf(a, 1))
			t.wantAnnotations(snap, notes)
		}
		t.wantState(written, read)
		number(t, written.ResourceVersion)
	}},
	{"read of a released lock", func(t *trial) {
		a := t.Lock("pod-a", "stable")
		free := recordOf(a, 2)
		free.HolderIdentity, free.HolderKey, free.LeaseDurationSeconds = "", "", 1
		t.wantRecord(t.must(a.Write(t.ctx, t.acquire(a), free, nil)), free)
		t.wantStored(free)
	}},
	{"canceled context", func(t *trial) {
		a := t.Lock("pod-a", "stable")
		ctx, cancel := context.WithCancel(t.ctx)
		cancel()
		if _, err := a.Read(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("read: %v, want context.Canceled", err)
		}
		if _, err := a.Write(ctx, k8sresourcelock.Snapshot{}, recordOf(a, 1), nil); !errors.Is(err, context.Canceled) || k8sresourcelock.IsConflict(err) {
			t.Errorf("write: %v, want context.Canceled and no conflict", err)
		}
		if err := watchOnce(ctx, a); err != nil {
			t.Errorf("watch: %v, want an ordinary end", err)
		}
	}},
}

func watchOnce(ctx context.Context, l k8sresourcelock.Lock) error {
	watch := l.Subscribe(ctx, func() {})
	watch.End()
	var errs []error
	for _, n := range watch.Next() {
		errs = append(errs, n.Err)
	}
	return errors.Join(errs...)
}

var writeChecks = []check{
	{"second create and write on an outdated base conflict", func(t *trial) {
		a, b := t.Lock("pod-a", "stable"), t.Lock("pod-b", "canary")
		base := t.acquire(a)
		_, err := b.Write(t.ctx, k8sresourcelock.Snapshot{}, recordOf(b, 2), nil)
		t.wantConflict(err)
		t.wantStored(recordOf(a, 1))
		t.must(b.Write(t.ctx, base, recordOf(b, 2), nil))
		_, err = a.Write(t.ctx, base, recordOf(a, 3), nil)
		t.wantConflict(err)
		t.wantStored(recordOf(b, 2))
	}},
	{"one of many writers succeeds", func(t *trial) {
		base := t.acquire(t.Lock("pod-a", "stable"))
		const writers = 8
		var (
			wg   sync.WaitGroup
			errs [writers]error
		)
		for i := range writers {
			wg.Go(func() {
				l := t.Lock("pod-"+string(rune('b'+i)), "canary")
				_, errs[i] = l.Write(t.ctx, base, recordOf(l, 2), nil)
			})
		}
		wg.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
			} else {
				t.wantConflict(err)
			}
		}
		if won != 1 {
			t.Errorf("%d writers won", won)
		}
	}},
	{"versions grow", func(t *trial) {
		a := t.Lock("pod-a", "stable")
		first := t.acquire(a)
		second := t.must(a.Write(t.ctx, first, recordOf(a, 2), nil))
		t.wantLater(second, first)
		t.Delete()
		third := t.acquire(a)
		t.wantLater(third, second)
		if third.UID == first.UID || second.UID != first.UID {
			t.Errorf("UIDs %s, %s, then re-created %s", first.UID, second.UID, third.UID)
		}
	}},
	{"write on a deleted or recreated lock conflicts", func(t *trial) {
		a, b := t.Lock("pod-a", "stable"), t.Lock("pod-b", "canary")
		base := t.acquire(a)
		t.Delete()
		_, err := a.Write(t.ctx, base, recordOf(a, 2), nil)
		t.wantConflict(err)
		if snap := t.must(a.Read(t.ctx)); snap.Exists {
			t.Errorf("the write brought the lock back: %+v", snap.Record)
		}
		t.acquire(b)
		_, err = a.Write(t.ctx, base, recordOf(a, 2), nil)
		t.wantConflict(err)
		t.wantStored(recordOf(b, 1))
	}},
	{"only a renewal changes version and bytes", func(t *trial) {
		a := t.Lock("pod-a", "stable")
		base := t.acquire(a)
		t.wantState(t.must(a.Write(t.ctx, base, recordOf(a, 1), nil)), base)
		later := base.Record
		later.RenewTime = metav1.NewTime(later.RenewTime.Add(1e9))
		next := t.must(a.Write(t.ctx, base, later, nil))
		t.wantLater(next, base)
		if bytes.Equal(next.Raw, base.Raw) {
			t.Errorf("raw stays %s", next.Raw)
		}
	}},
	{"write does not change its base", func(t *trial) {
		a := t.Lock("pod-a", "stable")
		base := t.must(a.Write(t.ctx, k8sresourcelock.Snapshot{}, recordOf(a, 1), map[string]string{record.MarkerAnnotation: "v1 pod-a 1"}))
		before := base.Object.DeepCopyObject()
		t.must(a.Write(t.ctx, base, recordOf(a, 2), map[string]string{record.NominatedAnnotation: "pod-b"}))
		if !equality.Semantic.DeepEqual(base.Object, before) {
			t.Errorf("base changed to %+v", base.Object)
		}
		t.wantAnnotations(base, map[string]string{record.MarkerAnnotation: "v1 pod-a 1"})
	}},
	{"empty key", func(t *trial) {
		a, b := t.Lock("pod-a", "stable"), t.Lock("pod-b", "")
		next := t.must(b.Write(t.ctx, t.acquire(a), recordOf(b, 2), nil))
		t.wantRecord(next, recordOf(b, 2))
		t.wantStored(recordOf(b, 2))
	}},
	{"special characters", func(t *trial) {
		a := t.Lock(`pod<&>"'\/ü`, "^stable")
		t.acquire(a)
		t.wantStored(recordOf(a, 1))
	}},
	{"invalid write is not sent", func(t *trial) {
		a := t.Lock("pod-a", "stable")
		base := t.acquire(a)
		unguarded := base
		unguarded.ResourceVersion = ""
		nameless := base
		nameless.UID = ""
		hollow := base
		hollow.Object = nil
		spoil := func(f func(*k8sresourcelock.LeaderElectionRecord)) k8sresourcelock.LeaderElectionRecord {
			r := recordOf(a, 2)
			f(&r)
			return r
		}
		type rec = k8sresourcelock.LeaderElectionRecord
		for name, try := range map[string]struct {
			base        k8sresourcelock.Snapshot
			record      rec
			annotations map[string]string
		}{
			"no version to guard": {base: unguarded, record: recordOf(a, 2)},
			"no UID to guard":     {base: nameless, record: recordOf(a, 2)},
			"no object":           {base: hollow, record: recordOf(a, 2)},
			"foreign note":        {base: base, record: recordOf(a, 2), annotations: map[string]string{"example.com/x": "y"}},
			"zero duration":       {base: base, record: spoil(func(r *rec) { r.LeaseDurationSeconds = 0 })},
			"negative duration":   {base: base, record: spoil(func(r *rec) { r.LeaseDurationSeconds = -1 })},
			"huge duration":       {base: base, record: spoil(func(r *rec) { r.LeaseDurationSeconds = math.MaxInt64 })},
			"negative count":      {base: base, record: spoil(func(r *rec) { r.LeaderTransitions = -1 })},
			"over-long holder":    {base: base, record: spoil(func(r *rec) { r.HolderIdentity = strings.Repeat("x", 5000) })},
			"over-long key":       {base: base, record: spoil(func(r *rec) { r.HolderKey = strings.Repeat("x", 5000) })},
			"holder not UTF-8":    {base: base, record: spoil(func(r *rec) { r.HolderIdentity = "pod-\xff" })},
		} {
			if _, err := a.Write(t.ctx, try.base, try.record, try.annotations); err == nil || k8sresourcelock.IsConflict(err) {
				t.Errorf("%s: error %v, want a refusal", name, err)
			}
		}
		t.wantStored(recordOf(a, 1))
	}},
}
