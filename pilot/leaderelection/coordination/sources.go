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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"incumbent.dev/incumbent/internal/members"
)

// byElection indexes candidates by the name of their lock.
const byElection = "election"

func leaseSource(client kubernetes.Interface, namespace string) *cache.ListWatch {
	leases := client.CoordinationV1().Leases(namespace)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return leases.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return leases.Watch(ctx, o)
		},
	}
}

// candidateSource notes in passing whether LeaseCandidates are served: an API server without the feature, as it is by default, says
// that there are none of that name.
func (c *Controller) candidateSource() *cache.ListWatch {
	objects := c.cfg.Client.CoordinationV1beta1().LeaseCandidates(c.cfg.Namespace)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := objects.List(ctx, o)
			c.served(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := objects.Watch(ctx, o)
			c.served(err)
			return w, err
		},
	}
}

// unlessUnserved reports what goes wrong with a watch as client-go does. That LeaseCandidates are not served was said already.
func unlessUnserved(ctx context.Context, r *cache.Reflector, err error) {
	if !apierrors.IsNotFound(err) {
		cache.DefaultWatchErrorHandler(ctx, r, err)
	}
}

// hearing is what the sources tell beside their objects.
type hearing struct {
	gone  atomic.Bool // LeaseCandidates are not served
	drops atomic.Bool // of a Lease, the API server has not stored strategy or preferredHolder
	mu    sync.Mutex
	// back is when LeaseCandidates began to be served again; zero: they were from the beginning.
	back time.Time
	last map[string]heard // by member Lease
	// members are what their Leases say, by name: each takes part in many elections, and is read once.
	members map[string]parsed
	// locks are known before a term begins: one that coordinates after another has been following them for as long.
	locks map[string]seenLock
}

// seenLock is how a lock is, and since when.
type seenLock struct {
	state leaseState
	since time.Time
}

// heard is a member's last renewal, and when it was seen.
type heard struct {
	renewed int64
	at      time.Time
}

// parsed is what a member's Lease of that resourceVersion says.
type parsed struct {
	version string
	member  members.Member
	err     error
}

func newHearing() *hearing {
	return &hearing{last: map[string]heard{}, locks: map[string]seenLock{}, members: map[string]parsed{}}
}

// member is members.Parse of a Lease.
func (h *hearing) member(lease *coordinationv1.Lease) (members.Member, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, known := h.members[lease.Name]
	if !known || p.version != lease.ResourceVersion {
		p.version = lease.ResourceVersion
		p.member, p.err = members.Parse(lease)
		h.members[lease.Name] = p
	}
	return p.member, p.err
}

func (c *Controller) unserved() bool { return c.heard.gone.Load() }

// publishing is for how long candidates may take to publish themselves once LeaseCandidates are served: each tries again after
// longestUnserved at the latest.
const publishing = longestUnserved + 3*requestTimeout

// byMembers reports whether members are the candidates, and for how long yet; 0: until LeaseCandidates are served. While candidates have yet
// to publish themselves, whoever has done so first would be best for that alone.
func (c *Controller) byMembers() (yes bool, left time.Duration) {
	if c.unserved() {
		return true, 0
	}
	c.heard.mu.Lock()
	defer c.heard.mu.Unlock()
	if c.heard.back.IsZero() {
		return false, 0
	}
	left = publishing - time.Since(c.heard.back)
	return left > 0, max(left, 0)
}

func (c *Controller) served(err error) {
	gone := apierrors.IsNotFound(err)
	if err != nil && !gone || c.heard.gone.Swap(gone) == gone {
		return
	}
	if gone {
		c.cfg.Logger.Info("the API server does not serve LeaseCandidates (coordination.k8s.io/v1beta1): members that ask for a strategy are the candidates")
	} else {
		c.heard.mu.Lock()
		c.heard.back = time.Now()
		c.heard.mu.Unlock()
		c.cfg.Logger.Info("the API server serves LeaseCandidates: they are the candidates of an election once all have published themselves", "atTheLatest", publishing)
	}
	c.Reconsider()
}

// withoutManagers drops what nobody here reads. Whose the holder's key is, which that tells, is of no account.
func withoutManagers(object any) (any, error) {
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

// memberElections are the elections in which a member asks for a strategy. Other Leases are none's.
func (h *hearing) memberElections(object any) (names []string, _ error) {
	lease, ok := object.(*coordinationv1.Lease)
	if !ok || lease.Labels[members.Label] != members.LabelValue {
		return nil, nil
	}
	m, err := h.member(lease)
	if err != nil {
		return nil, nil //nolint:nilerr // it is nobody's candidate
	}
	for _, e := range m.Elections {
		if e.Candidate && e.Strategy != "" {
			names = append(names, e.Name)
		}
	}
	return names, nil
}

// changed looks at each election that an object is about, before its change and after it.
func (c *Controller) changed() cache.ResourceEventHandler {
	touch := func(objects ...any) {
		for _, object := range objects {
			switch o := object.(type) {
			case *coordinationv1beta1.LeaseCandidate:
				c.enqueue(o.Spec.LeaseName)
			case *coordinationv1.Lease:
				if o.Labels[members.Label] != members.LabelValue {
					c.heard.noteLock(o)
					c.enqueue(o.Name)
					continue
				}
				c.heard.note(o)
				names, _ := c.heard.memberElections(o)
				for _, name := range names {
					c.enqueue(name)
				}
			}
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { touch(object) },
		UpdateFunc: func(before, object any) { touch(before, object) },
		DeleteFunc: func(object any) {
			if missed, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = missed.Obj
			}
			touch(object)
			if lease, ok := object.(*coordinationv1.Lease); ok {
				c.heard.forget(lease.Name)
			}
		},
	}
}

// note remembers when a member's renewal was seen.
func (h *hearing) note(lease *coordinationv1.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	renewed := micros(lease.Spec.RenewTime)
	if known, ok := h.last[lease.Name]; !ok || renewed > known.renewed {
		h.last[lease.Name] = heard{renewed: renewed, at: time.Now()}
	}
}

// noteLock remembers since when a lock is as it is.
func (h *hearing) noteLock(lease *coordinationv1.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if state := stateOf(lease); h.locks[lease.Name].state != state {
		h.locks[lease.Name] = seenLock{state: state, since: time.Now()}
	}
}

// forget drops what is known of a Lease that is gone.
func (h *hearing) forget(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.locks, name)
	delete(h.members, name)
	delete(h.last, name)
}

// observer is one that knows of a lock what has been seen of it so far.
func (h *hearing) observer(name string) *Observer {
	h.mu.Lock()
	defer h.mu.Unlock()
	return &Observer{lease: h.locks[name].state, since: h.locks[name].since}
}

func (h *hearing) of(name string) heard {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last[name]
}

// elections are the names of all that might have something to do.
func (c *Controller) elections() []string {
	names := c.candidates.GetIndexer().ListIndexFuncValues(byElection)
	names = append(names, c.leases.GetIndexer().ListIndexFuncValues(byElection)...)
	slices.Sort(names)
	return slices.Compact(names)
}
