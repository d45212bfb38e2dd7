package locks

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/tests/cluster"
)

// peer is client-go's own lock on the scene's Lease. agent is the name under which
// the API server notes its writes.
func (s scene) peer(t *testing.T, identity, agent string) *resourcelock.LeaseLock {
	t.Helper()
	config := cluster.Shared(t).Admin()
	config.UserAgent = agent + "/v1"
	set, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: s.namespace, Name: lockName},
		Client:     set.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}
}

var subSecond = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 30, 123456000, time.UTC))

func theirs(holder string, transitions int) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{
		HolderIdentity: holder, LeaseDurationSeconds: 15,
		AcquireTime: subSecond, RenewTime: metav1.NewTime(subSecond.Add(2 * time.Second)), LeaderTransitions: transitions,
	}
}

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

// client-go preserves our annotations. The marker is void because its term does not match. managedFields shows
// that the key is outdated.
func TestKey_OfFormerHolder(t *testing.T) {
	tests := []struct {
		name, agent, want string
	}{
		{"client-go", "operator", ""},
		{"istiod", "pilot-discovery", "stable"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newScene(t, locktest.Lease, func(*rest.Config) {})
			a := s.lock("pod-a", "stable")
			notes := map[string]string{k8sresourcelock.MarkerAnnotation: "v1 pod-a 1"}
			write(t, a, k8sresourcelock.Snapshot{}, ours("pod-a", "stable", 1), notes)
			peer := s.peer(t, "theirs", tt.agent)
			if _, _, err := peer.Get(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := peer.Update(t.Context(), theirs("theirs", 2)); err != nil {
				t.Fatal(err)
			}
			snap := read(t, a)
			if snap.Record.HolderIdentity != "theirs" || snap.Record.HolderKey != tt.want || snap.Annotations[k8sresourcelock.MarkerAnnotation] != "v1 pod-a 1" {
				t.Errorf("read %+v, notes %v; want key %q", snap.Record, snap.Annotations, tt.want)
			}
			// A watch returns the same key. It may start with an older version.
			ctx, cancel := context.WithCancel(t.Context())
			_, err := a.Watch(ctx, "", func() {}, func(w k8sresourcelock.Snapshot) {
				if w.ResourceVersion != snap.ResourceVersion {
					return
				}
				if w.Record != snap.Record || string(w.Raw) != string(snap.Raw) {
					t.Errorf("watched %+v\n   read %+v", w.Record, snap.Record)
				}
				cancel()
			})
			if err != nil {
				t.Fatal(err)
			}
			// Taken over again with the same key, it is ours and counts.
			back := write(t, a, snap, ours("pod-a", "stable", 3), nil)
			if back.Record.HolderKey != "stable" || len(back.Annotations) != 0 {
				t.Errorf("taken back: %+v, notes %v", back.Record, back.Annotations)
			}
		})
	}
}
