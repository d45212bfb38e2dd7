package electors

import (
	"context"
	"errors"
	"reflect"
	"time"
	"unsafe"

	"istio.io/istio/pilot/pkg/leaderelection"
	"k8s.io/client-go/kubernetes"
)

type istiod struct {
	*leaderelection.LeaderElection
	p *Process
}

// newIstio uses the constructor of istiod for the lock and rank.
func (p *Process) newIstio(c *Candidate) (elector, error) {
	var le *leaderelection.LeaderElection
	switch {
	case c.PerRevision && c.Lock == Lease && !c.Remote:
		le = leaderelection.NewPerRevisionLeaderElection(c.Namespace, c.Identity, c.Election, c.Revision, p.istio)
	case c.PerRevision || c.Lock == Lease && c.Remote:
		return nil, errors.New("istiod does not support this election")
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

// shorten sets the unexported lease of an istiod election, as Istio's own tests do. istiod derives the other two
// durations from it. Benchmarks use the 30 s of the constructor.
func shorten(le *leaderelection.LeaderElection, timing Timing) error {
	if timing.Deadline != timing.Lease/2 || timing.Retry != timing.Lease/4 {
		return errors.New("istiod requires a deadline of half and a period of a quarter of the lease")
	}
	field := reflect.ValueOf(le).Elem().FieldByName("ttl")
	if !field.IsValid() || field.Type() != reflect.TypeFor[time.Duration]() {
		return errors.New("istiod's election has no field ttl")
	}
	*(*time.Duration)(unsafe.Pointer(field.UnsafeAddr())) = timing.Lease
	return nil
}

func (i istiod) campaign(ctx context.Context) {
	// The constructor has added a handler to an informer.
	i.p.istio.RunAndWait(i.p.stop)
	i.Run(ctx.Done())
}

func (i istiod) client() kubernetes.Interface { return i.p.istio.Kube() }
