package coordination

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/atomic"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// byElection is the index of candidates by the name of their lock.
const byElection = "election"

// candidateSource also records whether LeaseCandidates are served. By default, an API server does not serve them and
// answers "not found".
func (c *Controller) candidateSource() *cache.ListWatch {
	objects := c.cfg.Client.CoordinationV1beta1().LeaseCandidates(c.cfg.Namespace)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := objects.List(ctx, o)
			c.recordServed(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := objects.Watch(ctx, o)
			c.recordServed(err)
			return w, err
		},
	}
}

// ignoreUnserved logs watch errors as client-go does, except that LeaseCandidates are not served. recordServed logs that.
func ignoreUnserved(ctx context.Context, r *cache.Reflector, err error) {
	if !isUnserved(err) {
		cache.DefaultWatchErrorHandler(ctx, r, err)
	}
}

// sightings records what the objects alone do not contain.
type sightings struct {
	unserved    atomic.Bool // LeaseCandidates are not served
	dropsFields atomic.Bool // the API server drops strategy and preferredHolder of a Lease
	mu          sync.Mutex
	// leases are recorded between terms too, so that a new term has their ages.
	leases map[string]leaseSighting
}

// leaseSighting is the state of a Lease and when it was first seen.
type leaseSighting struct {
	state leaseState
	since time.Time
}

func newSightings() *sightings { return &sightings{leases: map[string]leaseSighting{}} }

func (c *Controller) unserved() bool { return c.seen.unserved.Load() }

func (c *Controller) recordServed(err error) {
	unserved := isUnserved(err)
	if err != nil && !unserved || c.seen.unserved.Swap(unserved) == unserved {
		return
	}
	if unserved {
		c.cfg.Logger.Info("API server does not serve LeaseCandidates (coordination.k8s.io/v1beta1); elections are not coordinated")
	} else {
		c.cfg.Logger.Info("API server serves LeaseCandidates; coordinating elections")
	}
	c.Refresh()
}

// isUnserved reports whether the API server does not serve LeaseCandidates: the path does not exist, so the response is no Status, or
// a Status without a kind. The Status for a missing object has its kind.
func isUnserved(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details == nil || details.Kind == "" || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

func dropManagedFields(object any) (any, error) {
	if o, err := meta.Accessor(object); err == nil {
		o.SetManagedFields(nil)
	}
	return object, nil
}

func candidateElection(object any) ([]string, error) {
	if c, ok := object.(*coordinationv1beta1.LeaseCandidate); ok {
		return []string{c.Spec.LeaseName}, nil
	}
	return nil, nil
}

// eventHandler enqueues the elections of an object before and after its change.
func (c *Controller) eventHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: c.handle,
		UpdateFunc: func(before, object any) {
			c.handle(before)
			c.handle(object)
		},
		DeleteFunc: func(object any) {
			if missed, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = missed.Obj
			}
			c.handle(object)
			if lease, ok := object.(*coordinationv1.Lease); ok {
				c.seen.forget(lease.Name)
			}
		},
	}
}

func (c *Controller) handle(object any) {
	switch o := object.(type) {
	case *coordinationv1beta1.LeaseCandidate:
		c.enqueue(o.Spec.LeaseName)
	case *coordinationv1.Lease:
		c.seen.record(o)
		c.enqueue(o.Name)
	}
}

// record records a renewal. The clock of the holder may have been set back, so each change counts.
func (s *sightings) record(lease *coordinationv1.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := stateOf(lease); s.leases[lease.Name].state != state {
		s.leases[lease.Name] = leaseSighting{state: state, since: time.Now()}
	}
}

func (s *sightings) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.leases, name)
}

// observer returns an observer with what has been seen of the lock.
func (s *sightings) observer(name string) *observer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &observer{lease: s.leases[name].state, since: s.leases[name].since}
}
