package coordination

import (
	"context"
	"slices"
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

	"incumbent.dev/incumbent/internal/members"
)

// byElection is the index of candidates and members by the name of their lock.
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
	if !apierrors.IsNotFound(err) {
		cache.DefaultWatchErrorHandler(ctx, r, err)
	}
}

// sightings records what the objects alone do not contain.
type sightings struct {
	unserved    atomic.Bool // LeaseCandidates are not served
	dropsFields atomic.Bool // the API server drops strategy and preferredHolder of a Lease
	mu          sync.Mutex
	// servedAgain is when LeaseCandidates began to be served after they were not.
	servedAgain time.Time
	// members caches parsed member Leases, because a member can be in many elections.
	members map[string]parsedMember
	// leases are the locks and the Leases of members. They are recorded between terms too, so that a new term has their ages.
	leases map[string]leaseSighting
}

// leaseSighting is the state of a Lease and when it was first seen.
type leaseSighting struct {
	state leaseState
	since time.Time
}

type parsedMember struct {
	version string
	member  members.Member
	err     error
}

func newSightings() *sightings {
	return &sightings{leases: map[string]leaseSighting{}, members: map[string]parsedMember{}}
}

func (s *sightings) member(lease *coordinationv1.Lease) (members.Member, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, known := s.members[lease.Name]
	if !known || p.version != lease.ResourceVersion {
		p.version = lease.ResourceVersion
		p.member, p.err = members.Parse(lease)
		s.members[lease.Name] = p
	}
	return p.member, p.err
}

func (c *Controller) unserved() bool { return c.seen.unserved.Load() }

// publishPeriod is how long candidates may take to publish themselves after LeaseCandidates are served again. Publishers
// (internal/leasecandidate) retry at least every 5 minutes.
const publishPeriod = 5*time.Minute + 3*requestTimeout

// useMembers reports whether the members are the candidates, and for how much longer. 0 means until LeaseCandidates are served.
// Members remain the candidates for publishPeriod, because otherwise the first published candidate would be chosen.
func (c *Controller) useMembers() (yes bool, left time.Duration) {
	if c.unserved() {
		return true, 0
	}
	c.seen.mu.Lock()
	defer c.seen.mu.Unlock()
	if c.seen.servedAgain.IsZero() {
		return false, 0
	}
	left = publishPeriod - time.Since(c.seen.servedAgain)
	return left > 0, max(left, 0)
}

func (c *Controller) recordServed(err error) {
	unserved := apierrors.IsNotFound(err)
	if err != nil && !unserved || c.seen.unserved.Swap(unserved) == unserved {
		return
	}
	if unserved {
		c.cfg.Logger.Info("API server does not serve LeaseCandidates (coordination.k8s.io/v1beta1); using members as candidates")
	} else {
		c.seen.mu.Lock()
		c.seen.servedAgain = time.Now()
		c.seen.mu.Unlock()
		c.cfg.Logger.Info("API server serves LeaseCandidates; using them once all candidates are published", "timeout", publishPeriod)
	}
	c.Refresh()
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

// memberElections returns the elections in which a member requests a strategy.
func (s *sightings) memberElections(object any) (names []string, _ error) {
	lease, ok := object.(*coordinationv1.Lease)
	if !ok || lease.Labels[members.Label] != members.LabelValue {
		return nil, nil
	}
	m, err := s.member(lease)
	if err != nil {
		return nil, nil //nolint:nilerr // an invalid member is no candidate
	}
	for _, e := range m.Elections {
		if e.Candidate && e.Strategy != "" {
			names = append(names, e.Name)
		}
	}
	return names, nil
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
		if o.Labels[members.Label] != members.LabelValue {
			c.enqueue(o.Name)
			return
		}
		names, _ := c.seen.memberElections(o)
		for _, name := range names {
			c.enqueue(name)
		}
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
	delete(s.members, name)
}

// observer returns an observer with what has been seen of the lock.
func (s *sightings) observer(name string) *observer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &observer{lease: s.leases[name].state, since: s.leases[name].since}
}

// renewedAt returns when the last renewal of a member was seen.
func (s *sightings) renewedAt(name string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases[name].since
}

// elections returns the names of all elections with candidates or members.
func (c *Controller) elections() []string {
	names := c.candidates.GetIndexer().ListIndexFuncValues(byElection)
	names = append(names, c.leases.GetIndexer().ListIndexFuncValues(byElection)...)
	slices.Sort(names)
	return slices.Compact(names)
}
