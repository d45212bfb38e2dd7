package k8sresourcelock_test

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Two candidates write on the same base. The store accepts one of them.
func ExampleLeaseLock() {
	ctx := context.Background()
	server := locktest.NewStore(locktest.Lease) // in production: kubernetes.Interface's CoordinationV1()
	candidate := func(identity, key string) *k8sresourcelock.LeaseLock {
		return &k8sresourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: locktest.Namespace, Name: locktest.Name},
			Client:     server.Client(identity),
			LockConfig: k8sresourcelock.ResourceLockConfig{Identity: identity, Key: key},
		}
	}
	a, b := candidate("pod-a", "stable"), candidate("pod-b", "canary")

	seenByA, _ := a.Read(ctx)
	seenByB, _ := b.Read(ctx)
	now := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	record := func(l *k8sresourcelock.LeaseLock) k8sresourcelock.LeaderElectionRecord {
		return k8sresourcelock.LeaderElectionRecord{
			HolderIdentity: l.Identity(), HolderKey: l.Key(), LeaseDurationSeconds: 30,
			AcquireTime: now, RenewTime: now, LeaderTransitions: 1,
		}
	}

	snap, err := a.Write(ctx, seenByA, record(a), nil)
	fmt.Println(snap.Record.HolderIdentity, snap.Record.HolderKey, err)
	_, err = b.Write(ctx, seenByB, record(b), nil)
	fmt.Println(k8sresourcelock.IsConflict(err))
	fmt.Println(server.Snapshot().Record.HolderIdentity)
	// Output:
	// pod-a stable <nil>
	// true
	// pod-a
}
