package controllerruntime

import (
	"context"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// ClientGoLock returns the lock for an elector of client-go, such as the elector of manager.New
// (options.LeaderElectionResourceLockInterface). Use it for a lock that client-go does not have: a ConfigMap. Such an elector hands
// over to no challenger, and its writes have no gate.
func ClientGoLock(lock k8sresourcelock.Interface) resourcelock.Interface { return clientGoLock{lock} }

type clientGoLock struct{ k8sresourcelock.Interface }

func (l clientGoLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r, raw, err := l.Interface.Get(ctx)
	if err != nil {
		return nil, nil, err
	}
	return &resourcelock.LeaderElectionRecord{
		HolderIdentity: r.HolderIdentity, LeaseDurationSeconds: r.LeaseDurationSeconds,
		AcquireTime: r.AcquireTime, RenewTime: r.RenewTime, LeaderTransitions: r.LeaderTransitions,
	}, raw, nil
}

func (l clientGoLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.Interface.Create(ctx, l.record(r))
}

func (l clientGoLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.Interface.Update(ctx, l.record(r))
}

// record adds the rank of the candidate. A released record has none.
func (l clientGoLock) record(r resourcelock.LeaderElectionRecord) k8sresourcelock.LeaderElectionRecord {
	own := k8sresourcelock.LeaderElectionRecord{
		HolderIdentity: r.HolderIdentity, LeaseDurationSeconds: r.LeaseDurationSeconds,
		AcquireTime: r.AcquireTime, RenewTime: r.RenewTime, LeaderTransitions: r.LeaderTransitions,
	}
	if keyed, ok := l.Interface.(k8sresourcelock.Keyed); ok && r.HolderIdentity == l.Identity() {
		own.HolderKey = keyed.Key()
	}
	return own
}
