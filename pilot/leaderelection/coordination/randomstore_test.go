package coordination

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const simLease = "lock"

var (
	errSimConflict = errors.New("the object has changed")
	errSimGone     = errors.New("there is no such object")
	errSimInvalid  = errors.New("the object is invalid")
)

// simStore is the API server's part: objects with versions that grow, updates that are compared and swapped. What it has stored is never
// changed, so that everybody may share it.
type simStore struct {
	w             *simWorld
	version, uids int
	lease         *coordinationv1.Lease
	candidates    map[string]*coordinationv1beta1.LeaseCandidate
	// since is when the lock's holder was last changed or renewed.
	since time.Duration
}

func newSimStore(w *simWorld) *simStore {
	return &simStore{w: w, candidates: map[string]*coordinationv1beta1.LeaseCandidate{}}
}

func (s *simStore) stamp(o *metav1.ObjectMeta) {
	s.version++
	o.ResourceVersion = strconv.Itoa(s.version)
}

func (s *simStore) born(o *metav1.ObjectMeta) {
	s.uids++
	o.UID, o.CreationTimestamp = types.UID("u"+strconv.Itoa(s.uids)), metav1.NewTime(simStart.Add(s.w.now).Truncate(time.Second))
	s.stamp(o)
}

// simCompare says why an update of was by o is refused. One without a version is not: who sends it is to be noticed.
func simCompare(was, o metav1.Object) error {
	if o.GetUID() != was.GetUID() || o.GetResourceVersion() != "" && o.GetResourceVersion() != was.GetResourceVersion() {
		return errSimConflict
	}
	return nil
}

func (s *simStore) createLease(strategy *coordinationv1.CoordinatedLeaseStrategy) {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: simLease}, Spec: coordinationv1.LeaseSpec{Strategy: strategy}}
	s.born(&l.ObjectMeta)
	s.keep(l)
}

func (s *simStore) keep(l *coordinationv1.Lease) {
	if stateOf(s.lease) != stateOf(l) {
		s.since = s.w.now
	}
	was := s.lease
	s.lease = l
	s.w.checks.stored(was, l)
	s.w.spreadLease(l)
}

// ends is when the lease that is stored is over, in true time.
func (s *simStore) ends() time.Duration {
	return s.since + time.Duration(value(s.lease.Spec.LeaseDurationSeconds))*time.Second
}

func (s *simStore) putLease(l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if s.lease == nil {
		return nil, errSimGone
	}
	if err := simCompare(s.lease, l); err != nil {
		return nil, err
	}
	if value(l.Spec.PreferredHolder) != "" && value(l.Spec.Strategy) == "" {
		return nil, errSimInvalid
	}
	l = l.DeepCopy()
	l.ResourceVersion = s.lease.ResourceVersion
	if stateOf(l) == stateOf(s.lease) && equality.Semantic.DeepEqual(l, s.lease) {
		return s.lease, nil
	}
	s.stamp(&l.ObjectMeta)
	s.keep(l)
	return l, nil
}

func (s *simStore) deleteLease() {
	was := s.lease
	s.lease = nil
	s.w.checks.stored(was, nil)
	s.w.spreadLease(nil)
}

func (s *simStore) createCandidate(c *coordinationv1beta1.LeaseCandidate) error {
	if s.candidates[c.Name] != nil {
		return errSimConflict
	}
	c = c.DeepCopy()
	s.born(&c.ObjectMeta)
	s.candidates[c.Name] = c
	s.spread(c.Name, c)
	return nil
}

func (s *simStore) putCandidate(c *coordinationv1beta1.LeaseCandidate) error {
	was := s.candidates[c.Name]
	if was == nil {
		return errSimGone
	}
	if err := simCompare(was, c); err != nil {
		return err
	}
	c = c.DeepCopy()
	s.stamp(&c.ObjectMeta)
	s.candidates[c.Name] = c
	s.spread(c.Name, c)
	return nil
}

// deleteCandidate deletes what is of that version; "": of any.
func (s *simStore) deleteCandidate(name, version string) error {
	was := s.candidates[name]
	switch {
	case was == nil:
		return errSimGone
	case version != "" && version != was.ResourceVersion:
		return errSimConflict
	}
	delete(s.candidates, name)
	s.spread(name, nil)
	return nil
}

func (s *simStore) spread(name string, c *coordinationv1beta1.LeaseCandidate) {
	for _, coordinator := range s.w.coordinators {
		s.w.at(coordinator.sees(name), func() { coordinator.seeCandidate(name, c) })
	}
	if p := s.w.candidate(name); p != nil && p.alive {
		s.w.at(p.sees(&p.objectAt), func() { p.seeObject(c) })
	}
	s.w.after(20*time.Millisecond, s.w.kubernetes)
}

// simSorted are the objects in one order.
func simSorted(objects map[string]*coordinationv1beta1.LeaseCandidate) []*coordinationv1beta1.LeaseCandidate {
	return slices.SortedFunc(maps.Values(objects), func(a, b *coordinationv1beta1.LeaseCandidate) int { return cmp.Compare(a.Name, b.Name) })
}

// simBest is who goes first of them by incumbent.dev/DefaultRevision; "" if there is none. It is written anew here: the checks judge strategies
// too, thousands of times a run.
func simBest(s Situation, objects []*coordinationv1beta1.LeaseCandidate) string {
	best := ""
	var first *coordinationv1beta1.LeaseCandidate
	for _, o := range objects {
		if first == nil || simBefore(s, o, first) {
			best, first = o.Name, o
		}
	}
	return best
}

func simBefore(s Situation, a, b *coordinationv1beta1.LeaseCandidate) bool {
	rank := func(o *coordinationv1beta1.LeaseCandidate) int {
		r, _ := strconv.Atoi(o.Labels[PriorityLabel]) // of one digit
		if o.Labels[FitLabel] != "false" {
			r += 10
		}
		if o.Labels[RevisionLabel] == s.DefaultRevision {
			r += 100
		}
		return r
	}
	order := cmp.Or(cmp.Compare(rank(b), rank(a)), cmp.Compare(b.Spec.BinaryVersion, a.Spec.BinaryVersion), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
	if order == 0 && (a.Name == s.Holder || b.Name == s.Holder) {
		return a.Name == s.Holder
	}
	return cmp.Or(order, cmp.Compare(a.Name, b.Name)) < 0
}
