package k8sleaderelection

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// bareLock implements only Interface and returns its fields.
type bareLock struct {
	k8sresourcelock.Interface
	record *k8sresourcelock.LeaderElectionRecord
	raw    []byte
	err    error
}

func (b *bareLock) Get(context.Context) (*k8sresourcelock.LeaderElectionRecord, []byte, error) {
	return b.record, b.raw, b.err
}
func (b *bareLock) Create(context.Context, k8sresourcelock.LeaderElectionRecord) error { return b.err }
func (b *bareLock) Update(context.Context, k8sresourcelock.LeaderElectionRecord) error { return b.err }
func (b *bareLock) Describe() string                                                   { return "ns/bare" }

func TestPlainLock(t *testing.T) {
	resource := schema.GroupResource{Resource: "locks"}
	b := &bareLock{}
	p := complete(b).(*plainLock)
	version := func() string {
		t.Helper()
		snap, err := p.Read(t.Context())
		harness.Must(t, err)
		if snap.Raw == nil || snap.UID == "" {
			t.Errorf("snapshot without raw record or UID: %+v", snap)
		}
		return snap.ResourceVersion
	}
	record := k8sresourcelock.LeaderElectionRecord{HolderIdentity: "x", LeaseDurationSeconds: 30, RenewTime: metav1.Now()}
	b.record = &record // Get returns no bytes
	first := version()
	b.raw = []byte("x")
	second := version()
	if third := version(); first == "" || second == first || third != second {
		t.Errorf("versions %q, %q and, unchanged, %q", first, second, third)
	}
	b.err = errors.New("broken")
	if _, err := p.Read(t.Context()); !errors.Is(err, b.err) {
		t.Errorf("read: %v", err)
	}
	for _, base := range []k8sresourcelock.Snapshot{{}, {Exists: true}} {
		if snap, err := p.Write(t.Context(), base, record, nil); !errors.Is(err, b.err) || k8sresourcelock.IsConflict(err) || snap.Exists {
			t.Errorf("write on %+v: %v", base, err)
		}
	}
	for _, b.err = range []error{apierrors.NewConflict(resource, "x", nil), apierrors.NewAlreadyExists(resource, "x"), apierrors.NewNotFound(resource, "x")} {
		if _, err := p.Write(t.Context(), k8sresourcelock.Snapshot{}, record, nil); !k8sresourcelock.IsConflict(err) || !errors.Is(err, b.err) {
			t.Errorf("%v is returned as %v", b.err, err)
		}
	}
	if b.err = nil; version() != second {
		t.Error("a failed write changed the version")
	}
	b.record = nil
	if _, err := p.Read(t.Context()); err == nil {
		t.Error("no error without a record")
	}
	b.err = apierrors.NewNotFound(resource, "x")
	if snap, err := p.Read(t.Context()); err != nil || snap.Exists {
		t.Errorf("absent: %+v, %v", snap, err)
	}
}
