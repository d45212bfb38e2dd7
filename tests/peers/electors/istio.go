package electors

import (
	"context"
	"errors"
	"reflect"
	"time"
	"unsafe"

	"istio.io/istio/pilot/pkg/leaderelection"
)

type istiod struct {
	*leaderelection.LeaderElection
	p *Process
}

// newIstio uses istiod's constructors: which one decides lock and rank.
func (p *Process) newIstio(c *Candidate) (elector, error) {
	var le *leaderelection.LeaderElection
	switch {
	case c.PerRevision && c.Lock == Lease && !c.Remote:
		le = leaderelection.NewPerRevisionLeaderElection(c.Namespace, c.Identity, c.Election, c.Revision, p.istio)
	case c.PerRevision || c.Lock == Lease && c.Remote:
		return nil, errors.New("istiod has no such election")
	case c.Lock == Lease:
		le = leaderelection.NewLeaseLeaderElection(c.Namespace, c.Identity, c.Election, c.Revision, p.istio)
	default:
		le = leaderelection.NewLeaderElectionMulticluster(c.Namespace, c.Identity, c.Election, c.Revision, c.Remote, p.istio)
	}
	if c.Timing != IstioTiming {
		if err := shorten(le, c.Timing); err != nil {
			return nil, err
		}
	}
	le.AddRunFunction(c.work)
	return istiod{le, p}, nil
}

// shorten sets the lease of an istiod election, from which it takes the other two: a
// half and a quarter. Istio's own tests set the same field; nothing outside its package can but
// by this way. Elections that are measured have the 30 s of the constructor.
func shorten(le *leaderelection.LeaderElection, timing Timing) error {
	if timing.Deadline != timing.Lease/2 || timing.Retry != timing.Lease/4 {
		return errors.New("istiod's deadline and period are a half and a quarter of its lease")
	}
	field := reflect.ValueOf(le).Elem().FieldByName("ttl")
	if !field.IsValid() || field.Type() != reflect.TypeFor[time.Duration]() {
		return errors.New("istiod's election has no field ttl any more")
	}
	*(*time.Duration)(unsafe.Pointer(field.UnsafeAddr())) = timing.Lease
	return nil
}

func (i istiod) campaign(ctx context.Context) {
	// The constructor has put a handler on an informer, which runs from now on.
	i.p.istio.RunAndWait(i.p.stop)
	i.Run(ctx.Done())
}
