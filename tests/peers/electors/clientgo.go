package electors

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

type clientgo struct {
	config leaderelection.LeaderElectionConfig
	goes   kubernetes.Interface
}

func (p *Process) newClientGo(c *Candidate) (elector, error) {
	if c.Lock != Lease || c.PerRevision || c.Remote {
		return nil, errors.New("client-go does not support this election")
	}
	config := leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Election},
			Client:    p.goes.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: c.Identity},
		},
		LeaseDuration: c.Timing.Lease, RenewDeadline: c.Timing.Deadline, RetryPeriod: c.Timing.Retry,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { c.work(ctx.Done()) },
			OnStoppedLeading: func() {},
		},
	}
	_, err := leaderelection.NewLeaderElector(config)
	return clientgo{config, p.goes}, err
}

// campaign starts again after each term, as istiod does.
func (g clientgo) campaign(ctx context.Context) {
	for ctx.Err() == nil {
		leaderelection.RunOrDie(ctx, g.config)
	}
}

func (g clientgo) client() kubernetes.Interface { return g.goes }
