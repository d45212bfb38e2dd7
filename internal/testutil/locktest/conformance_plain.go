package locktest

import (
	"bytes"
	"errors"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

var plainChecks = []check{
	{"create, get, update", func(t *trial) {
		a, b := t.Lock("pod-a", "stable"), t.Lock("pod-b", "canary")
		if _, _, err := a.Get(t.ctx); !apierrors.IsNotFound(err) {
			t.Errorf("get before create: error %v, want NotFound", err)
		}
		harness.Must(t, a.Create(t.ctx, recordOf(a, 1)))
		if err := b.Create(t.ctx, recordOf(b, 1)); !apierrors.IsAlreadyExists(err) {
			t.Errorf("second create: error %v, want AlreadyExists", err)
		}
		if err := b.Update(t.ctx, recordOf(b, 2)); err == nil || k8sresourcelock.IsConflict(err) {
			t.Errorf("update before get: error %v, want a refusal", err)
		}
		t.wantStored(recordOf(a, 1))
		got, raw, err := b.Get(t.ctx)
		if err != nil || !equality.Semantic.DeepEqual(*got, recordOf(a, 1)) || !bytes.Equal(raw, t.must(b.Read(t.ctx)).Raw) {
			t.Fatalf("got %+v, %s, %v", got, raw, err)
		}
		if err := a.Update(t.ctx, recordOf(a, 2)); err != nil { // base: its Create
			t.Fatal(err)
		}
		if err := a.Update(t.ctx, recordOf(a, 3)); err != nil { // base: its Update
			t.Fatal(err)
		}
		t.wantStored(recordOf(a, 3))
		err = b.Update(t.ctx, recordOf(b, 4)) // base: its earlier Get
		t.wantConflict(err)
		if !apierrors.IsConflict(err) {
			t.Errorf("error %v hides the API server's answer", err)
		}
		t.wantStored(recordOf(a, 3))
	}},
	{"update preserves annotations", func(t *trial) {
		a, b := t.Lock("pod-a", "stable"), t.Lock("pod-b", "canary")
		t.must(a.Write(t.ctx, k8sresourcelock.Snapshot{}, recordOf(a, 1), allAnnotations()))
		if _, _, err := b.Get(t.ctx); err != nil {
			t.Fatal(err)
		}
		harness.Must(t, b.Update(t.ctx, recordOf(b, 2)))
		t.wantAnnotations(t.must(a.Read(t.ctx)), allAnnotations())
	}},
	{"get of an unreadable record", func(t *trial) {
		a := t.Lock("pod-a", "stable")
		t.acquire(a)
		t.Mutate(corrupt)
		if _, raw, err := a.Get(t.ctx); !errors.Is(err, k8sresourcelock.ErrUnreadable) || raw == nil {
			t.Errorf("raw %q, error %v; want ErrUnreadable", raw, err)
		}
		harness.Must(t, a.Update(t.ctx, recordOf(a, 2)))
		t.wantStored(recordOf(a, 2))
	}},
	{"identity, key, description", func(t *trial) {
		a := t.Lock("pod-a", "stable")
		if a.Identity() != "pod-a" || a.Key() != "stable" || a.Describe() == "" {
			t.Errorf("identity %q, key %q, %q", a.Identity(), a.Key(), a.Describe())
		}
		a.RecordEvent("without a recorder") // must not panic
	}},
}
