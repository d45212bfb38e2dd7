package locks

import (
	"context"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/internal/watch"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// watchFrom returns the first n events after a version, and the error with which the watch ended.
func (s scene) watchFrom(t *testing.T, version string, n int) (events []string, err error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	open := s.candidate.CoreV1().ConfigMaps(s.namespace).Watch
	if s.kind == locktest.Lease {
		open = s.candidate.CoordinationV1().Leases(s.namespace).Watch
	}
	f := watch.Follower{
		Watch: open, Selection: watch.ByName(lockName), Read: func(context.Context) (string, error) { return version, nil },
		Connected: func(context.Context, bool) error { return nil },
		Event: func(_ context.Context, kind apiwatch.EventType, _ watch.Object) error {
			if events = append(events, string(kind)); len(events) == n {
				cancel()
			}
			return nil
		},
		Ended: func(end watch.End) bool {
			err = end.Err
			return false
		},
	}
	f.Run(ctx)
	return events, err
}

// A watch resumes from a version, also after a deletion. It cannot resume from an expired version.
func TestFollower_Resumes(t *testing.T) {
	for _, kind := range []locktest.Kind{locktest.ConfigMap, locktest.Lease} {
		for _, encoding := range encodings {
			t.Run(string(kind)+"/"+encoding.name, func(t *testing.T) {
				s := newScene(t, kind, func(c *rest.Config) { c.ContentType = encoding.content })
				a := s.lock("pod-a", "stable")
				record := k8sresourcelock.LeaderElectionRecord{HolderIdentity: "pod-a", HolderKey: "stable", LeaseDurationSeconds: 30, AcquireTime: at(5, 0), RenewTime: at(5, 0)}
				base, err := a.Write(t.Context(), k8sresourcelock.Snapshot{}, record, nil)
				harness.Must(t, err)
				record.RenewTime = metav1.NewTime(record.RenewTime.Add(1e9))
				if _, err := a.Write(t.Context(), base, record, nil); err != nil {
					t.Fatal(err)
				}
				s.remove(t)
				if _, err := a.Write(t.Context(), k8sresourcelock.Snapshot{}, record, nil); err != nil {
					t.Fatal(err)
				}
				if got, err := s.watchFrom(t, base.ResourceVersion, 3); err != nil || !slices.Equal(got, []string{"MODIFIED", "DELETED", "ADDED"}) {
					t.Errorf("events %q, error %v", got, err)
				}
				if got, err := s.watchFrom(t, "1", 1); !watch.IsExpired(err) { // see forgetful
					t.Error(fmt.Sprint("events ", got, ", error ", err))
				}
			})
		}
	}
}
