package coordination

import (
	"errors"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/internal/watch"
)

// longestPause is the longest pause between two watches.
const longestPause = 30 * time.Second

// watches returns the watches of the locks and of the candidates.
func (c *Controller) watches() (leases watch.Objects[*coordinationv1.Lease], candidates watch.Objects[*coordinationv1beta1.LeaseCandidate]) {
	const instead, late = "not coordinating until it succeeds", "coordinating with a delay"
	trouble := apirequest.NewTrouble(c.cfg.Logger, map[string]string{
		"list Leases": instead, "list LeaseCandidates": instead, "watch Leases": late, "watch LeaseCandidates": late,
	})
	leases = watch.Objects[*coordinationv1.Lease]{
		Source: watch.SourceOf(c.cfg.Client.CoordinationV1().Leases(c.cfg.Namespace),
			func(list *coordinationv1.LeaseList) []coordinationv1.Lease { return list.Items }),
		LongestPause: longestPause,
		Tried:        func(verb string, err error) { trouble.Tried(verb+" Leases", err) },
		Changed:      c.setLeases,
	}
	candidates = watch.Objects[*coordinationv1beta1.LeaseCandidate]{
		Source: watch.SourceOf(c.cfg.Client.CoordinationV1beta1().LeaseCandidates(c.cfg.Namespace),
			func(list *coordinationv1beta1.LeaseCandidateList) []coordinationv1beta1.LeaseCandidate {
				return list.Items
			}),
		LongestPause: longestPause,
		Tried: func(verb string, err error) {
			if c.recordServed(err); !isUnserved(err) { // most API servers do not serve them, so that is no problem
				trouble.Tried(verb+" LeaseCandidates", err)
			}
		},
		Changed: c.setCandidates,
	}
	return leases, candidates
}

// setLeases stores the locks, and enqueues the elections of changed objects.
func (c *Controller) setLeases(all []*coordinationv1.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leases == nil {
		close(c.listed)
	}
	c.leases = byName(c.leases, all, func(lease *coordinationv1.Lease) { c.enqueue(lease.Name) })
	before := c.sightings
	c.sightings = make(map[string]sighting, len(all))
	for _, lease := range all {
		seen := before[lease.Name]
		// The clock of the holder may have been set back, so each change counts as a renewal.
		if state := stateOf(lease); seen.state != state {
			seen = sighting{state: state, since: time.Now()}
		}
		c.sightings[lease.Name] = seen
	}
}

// setCandidates stores the candidates, and enqueues the elections of changed objects.
func (c *Controller) setCandidates(all []*coordinationv1beta1.LeaseCandidate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.candidates = byName(c.candidates, all, func(candidate *coordinationv1beta1.LeaseCandidate) { c.enqueue(candidate.Spec.LeaseName) })
	c.answer()
}

// byName returns the objects by name. It calls changed with each object that was added, deleted or changed, before and after.
func byName[T metav1.Object](before map[string]T, all []T, changed func(T)) map[string]T {
	after := make(map[string]T, len(all))
	for _, object := range all {
		after[object.GetName()] = object
		if former, known := before[object.GetName()]; !known || former.GetResourceVersion() != object.GetResourceVersion() {
			changed(object)
		}
	}
	for name, former := range before {
		if object, remains := after[name]; !remains || former.GetResourceVersion() != object.GetResourceVersion() {
			changed(former)
		}
	}
	return after
}

// sighting is the state of a Lease and when it was first seen, for the age of the Lease in a new term.
type sighting struct {
	state leaseState
	since time.Time
}

func (c *Controller) recordServed(err error) {
	unserved := isUnserved(err)
	if err != nil && !unserved || c.unserved.Swap(unserved) == unserved {
		return
	}
	if unserved {
		c.cfg.Logger.Info("API server does not serve LeaseCandidates (coordination.k8s.io/v1beta1); elections are not coordinated")
		c.answer()
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

// observer returns an observer with the observations of the lock.
func (c *Controller) observer(name string) *observer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &observer{lease: c.sightings[name].state, since: c.sightings[name].since}
}
