package locktest

import (
	"bytes"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

var plainChecks = []check{
	{"plain: an absent lock is NotFound", func(t *trial) {
		if _, _, err := t.Lock("pod-a", "stable").Get(t.ctx); !apierrors.IsNotFound(err) {
			t.Errorf("error %v, want NotFound", err)
		}
	}},
	{"plain: create, get, update", func(t *trial) {
		a, b := t.Lock("pod-a", "stable"), t.Lock("pod-b", "canary")
		if err := a.Create(t.ctx, record(a, 1)); err != nil {
			t.Fatal(err)
		}
		got, raw, err := b.Get(t.ctx)
		if err != nil || !sameRecord(*got, record(a, 1)) || !bytes.Equal(raw, t.must(b.Read(t.ctx)).Raw) {
			t.Fatalf("got %+v, %s, %v", got, raw, err)
		}
		if err := a.Update(t.ctx, record(a, 2)); err != nil { // on what it created
			t.Fatal(err)
		}
		if err := a.Update(t.ctx, record(a, 3)); err != nil { // on what it updated
			t.Fatal(err)
		}
		t.wantStored(record(a, 3))
		err = b.Update(t.ctx, record(b, 4)) // on what it got before
		t.wantConflict(err)
		if !apierrors.IsConflict(err) {
			t.Errorf("error %v hides the API server's answer", err)
		}
		t.wantStored(record(a, 3))
	}},
	{"plain: create on an existing lock", func(t *trial) {
		a, b := t.Lock("pod-a", "stable"), t.Lock("pod-b", "canary")
		t.acquire(a)
		if err := b.Create(t.ctx, record(b, 1)); !apierrors.IsAlreadyExists(err) {
			t.Errorf("error %v, want AlreadyExists", err)
		}
	}},
	{"plain: update before get", func(t *trial) {
		a := t.Lock("pod-a", "stable")
		t.acquire(a)
		if err := a.Update(t.ctx, record(a, 2)); err == nil || k8sresourcelock.IsConflict(err) {
			t.Errorf("error %v, want a refusal", err)
		}
		t.wantStored(record(a, 1))
	}},
	{"plain: update leaves our notes unread", func(t *trial) {
		a, b := t.Lock("pod-a", "stable"), t.Lock("pod-b", "canary")
		t.must(a.Write(t.ctx, k8sresourcelock.Snapshot{}, record(a, 1), allNotes()))
		if _, _, err := b.Get(t.ctx); err != nil {
			t.Fatal(err)
		}
		if err := b.Update(t.ctx, record(b, 2)); err != nil {
			t.Fatal(err)
		}
		t.wantNotes(t.must(a.Read(t.ctx)), allNotes())
	}},
	{"plain: an unreadable record is an error, and can be replaced", func(t *trial) {
		a := t.Lock("pod-a", "stable")
		t.acquire(a)
		t.Mutate(corrupt)
		if _, raw, err := a.Get(t.ctx); !errors.Is(err, k8sresourcelock.ErrUnreadable) || raw == nil {
			t.Errorf("raw %q, error %v; want ErrUnreadable", raw, err)
		}
		if err := a.Update(t.ctx, record(a, 2)); err != nil {
			t.Fatal(err)
		}
		t.wantStored(record(a, 2))
	}},
	{"plain: a lock says who and where it is", func(t *trial) {
		a := t.Lock("pod-a", "stable")
		if a.Identity() != "pod-a" || a.Key() != "stable" || a.Describe() == "" {
			t.Errorf("identity %q, key %q, %q", a.Identity(), a.Key(), a.Describe())
		}
		a.RecordEvent("without a recorder") // must not panic
	}},
}
