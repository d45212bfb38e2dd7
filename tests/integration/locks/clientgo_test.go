package locks

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/harness"
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
	harness.Must(t, err)
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: s.namespace, Name: lockName},
		Client:     set.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}
}

// at returns a time. client-go writes microseconds.
func at(second, micros int) metav1.Time {
	return metav1.NewTime(time.Date(2026, 1, 2, 3, 4, second, micros*1000, time.UTC))
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
			ours := k8sresourcelock.LeaderElectionRecord{
				HolderIdentity: "pod-a", HolderKey: "stable", LeaseDurationSeconds: 30, AcquireTime: at(5, 0), RenewTime: at(12, 0), LeaderTransitions: 1,
			}
			notes := map[string]string{record.MarkerAnnotation: "v1 pod-a 1"}
			if _, err := a.Write(t.Context(), k8sresourcelock.Snapshot{}, ours, notes); err != nil {
				t.Fatal(err)
			}
			peer := s.peer(t, "theirs", tt.agent)
			if _, _, err := peer.Get(t.Context()); err != nil {
				t.Fatal(err)
			}
			err := peer.Update(t.Context(), resourcelock.LeaderElectionRecord{
				HolderIdentity: "theirs", LeaseDurationSeconds: 15, AcquireTime: at(30, 123456), RenewTime: at(32, 123456), LeaderTransitions: 2,
			})
			harness.Must(t, err)
			snap, err := a.Read(t.Context())
			harness.Must(t, err)
			if snap.Record.HolderIdentity != "theirs" || snap.Record.HolderKey != tt.want || snap.Annotations[record.MarkerAnnotation] != "v1 pod-a 1" {
				t.Errorf("read %+v, notes %v; want key %q", snap.Record, snap.Annotations, tt.want)
			}
			// A later leader of this elector writes its own key, and no annotations of earlier terms.
			ours.LeaderTransitions = 3
			next, err := a.Write(t.Context(), snap, ours, nil)
			if err != nil || next.Record.HolderKey != "stable" || len(next.Annotations) != 0 {
				t.Errorf("wrote %+v, annotations %v, error %v", next.Record, next.Annotations, err)
			}
		})
	}
}
