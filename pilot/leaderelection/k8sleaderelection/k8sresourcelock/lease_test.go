package k8sresourcelock

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

func micro(s string) *metav1.MicroTime { return new(metav1.MicroTime(at(s))) }

func goldenLease() *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{LeaseHolderKey: "stable"}},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("pod-a"), LeaseDurationSeconds: new(int32(30)), LeaseTransitions: new(int32(3)),
			AcquireTime: micro("2026-01-02T03:04:05Z"), RenewTime: micro("2026-01-02T03:04:12Z"),
		},
	}
}

func TestEncodeLease_Golden(t *testing.T) {
	lease := &coordinationv1.Lease{}
	harness.Must(t, encodeLease(lease, golden))
	raw, err := json.Marshal(lease.Spec)
	harness.Must(t, err)
	want := `{"holderIdentity":"pod-a","leaseDurationSeconds":30,"acquireTime":"2026-01-02T03:04:05.000000Z",` +
		`"renewTime":"2026-01-02T03:04:12.000000Z","leaseTransitions":3}`
	if string(raw) != want {
		t.Errorf("\n got %s\nwant %s", raw, want)
	}
	if want := map[string]string{LeaseHolderKey: "stable"}; !reflect.DeepEqual(lease.Annotations, want) {
		t.Errorf("annotations %v, want %v", lease.Annotations, want)
	}

	for transitions, fits := range map[int]bool{math.MaxInt32: true, math.MaxInt32 + 1: false} {
		record := LeaderElectionRecord{LeaseDurationSeconds: 1, LeaderTransitions: transitions}
		if err := encodeLease(lease, record); (err == nil) != fits || lease.Spec.AcquireTime != nil && fits {
			t.Errorf("%d transitions: acquired %v, error %v", transitions, lease.Spec.AcquireTime, err)
		}
	}

	released := golden
	released.HolderIdentity, released.HolderKey, released.LeaseDurationSeconds = "", "", 1
	harness.Must(t, encodeLease(lease, released))
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != "" {
		t.Errorf("holder %v, want an empty string, never nil", lease.Spec.HolderIdentity)
	}
	if _, ok := lease.Annotations[LeaseHolderKey]; ok {
		t.Error("the key annotation outlived its key")
	}
}

func TestLeaseSnapshot(t *testing.T) {
	lease := goldenLease()
	lease.UID, lease.ResourceVersion = "u", "7"
	lease.Annotations[record.MarkerAnnotation] = "v1 pod-a 3"
	lease.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	before := lease.DeepCopy()
	snap := LeaseSnapshot(lease)
	if !reflect.DeepEqual(lease, before) {
		t.Error("decoding changed the object")
	}
	if !snap.Exists || snap.UID != "u" || snap.ResourceVersion != "7" || snap.Unreadable != nil || snap.Record != golden {
		t.Errorf("%+v", snap)
	}
	if want := map[string]string{record.MarkerAnnotation: "v1 pod-a 3"}; !reflect.DeepEqual(snap.Annotations, want) {
		t.Errorf("annotations %v, want %v", snap.Annotations, want)
	}
	if want := strings.NewReplacer(`05Z`, `05.000000Z`, `12Z`, `12.000000Z`).Replace(goldenJSON); string(snap.Raw) != want {
		t.Errorf("raw %s\nwant %s", snap.Raw, want)
	}
	before.ManagedFields = nil
	if !reflect.DeepEqual(snap.Object, before) {
		t.Errorf("object %+v", snap.Object)
	}
	if snap := LeaseSnapshot(nil); snap.Exists {
		t.Errorf("no Lease: %+v", snap)
	}
}

// FuzzLease checks that every Lease is either unreadable or a record that can be
// written and reads the same again.
func FuzzLease(f *testing.F) {
	f.Add("pod-a", "stable", int32(30), int32(3), int64(1767322212), int64(1767322219000001), byte(0xff), `{"f:spec":{"f:renewTime":{}}}`)
	f.Add("", "", int32(0), int32(0), int64(0), int64(0), byte(0), ``)
	f.Add("\xff\x00", "^", int32(math.MinInt32), int32(math.MaxInt32), int64(math.MinInt64), int64(math.MaxInt64), byte(0xff), `[`)
	f.Add(strings.Repeat("x", 5000), "k", int32(1), int32(math.MaxInt32-1), int64(-62135596800), int64(-1), byte(0b10101), `{"f:metadata":{"f:annotations":7}}`)
	f.Fuzz(func(t *testing.T, holder, key string, seconds, count int32, acquired, renewed int64, present byte, fields string) {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Annotations:   map[string]string{LeaseHolderKey: key},
			ManagedFields: []metav1.ManagedFieldsEntry{{}, {Manager: "x", FieldsV1: metav1.NewFieldsV1(fields)}},
		}}
		has := func(bit int) bool { return present&(1<<bit) != 0 }
		if has(0) {
			lease.Spec.HolderIdentity = &holder
		}
		if has(1) {
			lease.Spec.LeaseDurationSeconds = &seconds
		}
		if has(2) {
			lease.Spec.LeaseTransitions = &count
		}
		if has(3) {
			lease.Spec.AcquireTime = &metav1.MicroTime{Time: time.Unix(acquired, 0)}
		}
		if has(4) {
			lease.Spec.RenewTime = &metav1.MicroTime{Time: time.UnixMicro(renewed)}
		}
		snap := LeaseSnapshot(lease)
		if snap.Unreadable != nil {
			if snap.Record != (LeaderElectionRecord{}) {
				t.Errorf("unreadable, yet %+v", snap.Record)
			}
			return
		}
		harness.Must(t, checkRecord(snap.Record))
		again := &coordinationv1.Lease{}
		harness.Must(t, encodeLease(again, snap.Record))
		if got := LeaseSnapshot(again); got.Unreadable != nil || !sameSeconds(got.Record, snap.Record) {
			t.Errorf("%+v became %+v (%v)", snap.Record, got.Record, got.Unreadable)
		}
	})
}
