package locks

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

func second(s int) metav1.Time { return metav1.NewTime(time.Date(2026, 1, 2, 3, 4, s, 0, time.UTC)) }

func ours(holder, key string, transitions int) k8sresourcelock.LeaderElectionRecord {
	return k8sresourcelock.LeaderElectionRecord{
		HolderIdentity: holder, HolderKey: key, LeaseDurationSeconds: 30,
		AcquireTime: second(5), RenewTime: second(12), LeaderTransitions: transitions,
	}
}

func write(t *testing.T, l locktest.Locker, base k8sresourcelock.Snapshot, r k8sresourcelock.LeaderElectionRecord, notes map[string]string) k8sresourcelock.Snapshot {
	t.Helper()
	snap, err := l.Write(t.Context(), base, r, notes)
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

func read(t *testing.T, l locktest.Locker) k8sresourcelock.Snapshot {
	t.Helper()
	snap, err := l.Read(t.Context())
	if err != nil || snap.Unreadable != nil {
		t.Fatalf("%v, unreadable: %v", err, snap.Unreadable)
	}
	return snap
}

// stored is the relevant part of the lock object as JSON.
type stored struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec json.RawMessage `json:"spec"`
}

func (s scene) stored(t *testing.T) (obj stored) {
	t.Helper()
	client := s.admin.CoreV1().RESTClient()
	if s.kind == locktest.Lease {
		client = s.admin.CoordinationV1().RESTClient()
	}
	raw, err := client.Get().Namespace(s.namespace).Resource(string(s.kind)).Name(lockName).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &obj); err != nil {
		t.Fatal(err)
	}
	return obj
}

func TestGoldenConfigMap(t *testing.T) {
	s := newScene(t, locktest.ConfigMap, func(*rest.Config) {})
	a := s.lock("pod-a", "stable")
	snap := write(t, a, k8sresourcelock.Snapshot{}, ours("pod-a", "stable", 3), nil)
	const want = `{"holderIdentity":"pod-a","holderKey":"stable","leaseDurationSeconds":30,` +
		`"acquireTime":"2026-01-02T03:04:05Z","renewTime":"2026-01-02T03:04:12Z","leaderTransitions":3}`
	if got := s.stored(t).Metadata.Annotations[k8sresourcelock.LeaderElectionRecordAnnotationKey]; got != want || string(snap.Raw) != want {
		t.Errorf("stored %s\n  want %s", got, want)
	}
}

func TestGoldenLease(t *testing.T) {
	s := newScene(t, locktest.Lease, func(*rest.Config) {})
	a := s.lock("pod-a", "stable")
	snap := write(t, a, k8sresourcelock.Snapshot{}, ours("pod-a", "stable", 3), nil)
	const want = `{"holderIdentity":"pod-a","leaseDurationSeconds":30,"acquireTime":"2026-01-02T03:04:05.000000Z",` +
		`"renewTime":"2026-01-02T03:04:12.000000Z","leaseTransitions":3}`
	got := s.stored(t)
	if string(got.Spec) != want || got.Metadata.Annotations[k8sresourcelock.LeaseHolderKey] != "stable" {
		t.Errorf("stored %s, annotations %v\n  want %s", got.Spec, got.Metadata.Annotations, want)
	}

	free := k8sresourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1, AcquireTime: second(20), RenewTime: second(20), LeaderTransitions: 3}
	write(t, a, snap, free, nil)
	const wantFree = `{"holderIdentity":"","leaseDurationSeconds":1,"acquireTime":"2026-01-02T03:04:20.000000Z",` +
		`"renewTime":"2026-01-02T03:04:20.000000Z","leaseTransitions":3}`
	got = s.stored(t)
	if _, ok := got.Metadata.Annotations[k8sresourcelock.LeaseHolderKey]; string(got.Spec) != wantFree || ok {
		t.Errorf("stored %s, annotations %v\n  want %s", got.Spec, got.Metadata.Annotations, wantFree)
	}
}

// A ConfigMap of istiod is decoded.
func TestConfigMapOfIstiod(t *testing.T) {
	s := newScene(t, locktest.ConfigMap, func(*rest.Config) {})
	const raw = `{"holderIdentity":"istiod-7d5c8","holderKey":"canary","leaseDurationSeconds":30,` +
		`"acquireTime":"2026-01-02T03:04:05Z","renewTime":"2026-01-02T03:04:12Z","leaderTransitions":7}`
	s.mutate(t, lockName, func(obj locktest.Object) {
		obj.SetAnnotations(map[string]string{k8sresourcelock.LeaderElectionRecordAnnotationKey: raw})
	})
	snap := read(t, s.lock("pod-a", "stable"))
	if want := ours("istiod-7d5c8", "canary", 7); snap.Record != want || string(snap.Raw) != raw {
		t.Errorf("read %+v, %s\nwant %+v", snap.Record, snap.Raw, want)
	}
}
