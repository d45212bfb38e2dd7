package electors

import (
	"context"

	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/pilot/leaderelection"
)

type ours struct {
	*leaderelection.LeaderElection
	p *Process
}

func (p *Process) newOurs(c *Candidate) (elector, error) {
	lock := leaderelection.LockTypeConfigMap
	if c.Lock == Lease {
		lock = leaderelection.LockTypeLease
	}
	if !c.PerRevision { // other elections have no rank
		p.watch()
	}
	le, err := leaderelection.New(p.ours, leaderelection.Config{
		Namespace: c.Namespace, Identity: c.Identity, ElectionID: c.Election, Revision: c.Revision,
		PerRevision: c.PerRevision, Remote: c.Remote, Lock: lock,
		LeaseDuration: c.Timing.Lease, RenewDeadline: c.Timing.Deadline, RetryPeriod: c.Timing.Retry,
		PeerGrace: c.PeerGrace, DefaultWatcher: p.watcher, Logger: p.logger, Witness: p.witness,
	})
	if err != nil {
		return nil, err
	}
	le.AddRunContext(func(ctx context.Context) error {
		c.work(ctx.Done())
		return nil
	})
	return ours{le, p}, nil
}

func (o ours) campaign(ctx context.Context) {
	if err := o.RunContext(ctx); err != nil {
		o.p.logger.Error("the election ended", "err", err)
	}
}

func (o ours) client() kubernetes.Interface { return o.Client().Kube() }
