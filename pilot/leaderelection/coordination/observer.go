package coordination

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Observer is what a coordinator remembers of one election: since when, by its own clock, the objects have been
// as they are. Times of other clocks are compared with each other alone. A new Observer knows of no
// change yet: nobody's lease is over and no answer counts before it has seen so itself. A Controller's knows what was seen before its term.
type Observer struct {
	lease      leaseState
	since      time.Time
	candidates map[string]*candidateState
	preference preference
	unseen     ownWrite
}

// ownWrite is what a coordinator has made of a lock and has not seen there yet.
type ownWrite struct {
	lease leaseState
	at    time.Time
	over  string // the resourceVersion that it replaced; "" for none
}

// preference is what is known of whom the lock prefers to its holder.
type preference struct {
	who   string
	since time.Time
	// unanswered is who was preferred before for as long as one has to come, and did not.
	unanswered string
}

// unansweredAfter is for how long a preference stands that was given up since the candidate did not come: the clock of whoever gave it up may be faster.
const unansweredAfter = ElectionDuration * 9 / 10

// leaseState is what of a Lease changes when its holder renews.
type leaseState struct {
	uid, holder string
	renewed     int64
	transitions int32
	nominated   bool
}

type candidateState struct {
	uid             string
	renewed, pinged int64
	// answered is when an answer was seen to come, zero for never; asked when the present ping was first seen.
	answered, asked time.Time
	// replaced is the version of its object that is known not to be the newest one, as of replacedAt.
	replaced     string
	replacedAt   time.Time
	refusedUntil time.Time
	// gave is when it gave the lock up by itself: it stops, or has failed.
	gave    time.Time
	backOff time.Duration
	// sparedUntil is until when it is not preferred to the present holder, as it did not come when it was.
	sparedUntil  time.Time
	spareBackOff time.Duration
}

func stateOf(l *coordinationv1.Lease) leaseState {
	if l == nil {
		return leaseState{}
	}
	holder := value(l.Spec.HolderIdentity)
	return leaseState{
		uid: string(l.UID), holder: holder, renewed: micros(l.Spec.RenewTime), transitions: value(l.Spec.LeaseTransitions),
		nominated: holder != "" && nominated(l),
	}
}

// nominated reports whether somebody else has written the holder in, and it has not written itself: a coordinator, which leaves
// the acquireTime to it, or a leader that hands over.
func nominated(l *coordinationv1.Lease) bool {
	return l.Spec.AcquireTime == nil ||
		l.Annotations[k8sresourcelock.NominatedAnnotation] == value(l.Spec.HolderIdentity) && l.Spec.AcquireTime.Equal(l.Spec.RenewTime)
}

// observe takes in what there is at now.
func (o *Observer) observe(now time.Time, e Election) {
	known := o.candidates
	o.candidates = make(map[string]*candidateState, len(e.Candidates))
	for _, object := range e.Candidates {
		c := known[object.Name]
		renewed, pinged := micros(object.Spec.RenewTime), micros(object.Spec.PingTime)
		if c == nil || c.uid != string(object.UID) {
			c = &candidateState{uid: string(object.UID), renewed: renewed, pinged: pinged, asked: now}
		}
		if c.renewed != renewed {
			c.renewed, c.answered = renewed, now
		}
		if c.pinged != pinged {
			c.pinged, c.asked = pinged, now
		}
		o.candidates[object.Name] = c
	}
	stale := e.Lease != nil && e.Lease.ResourceVersion == o.unseen.over
	if w := o.unseen; w.over != "" && (e.Lease == nil || e.Lease.ResourceVersion != w.over) {
		o.unseen = ownWrite{}
		o.observeLock(w.at, w.lease)
	}
	o.observeLock(now, stateOf(e.Lease))
	if who, was := preferred(e.Lease), o.preference; who != was.who && !stale {
		o.preference = preference{who: who, since: now}
		if now.Sub(was.since) >= unansweredAfter {
			o.preference.unanswered = was.who
		}
	}
}

func (o *Observer) observeLock(now time.Time, state leaseState) {
	was := o.lease
	if was == state {
		return
	}
	if c := o.candidates[was.holder]; c != nil && was.uid == state.uid && was.nominated && state.holder == "" {
		c.refuse(now)
	} else if c != nil && was.uid == state.uid && state.holder == "" {
		c.gave = now
	} else if c := o.candidates[state.holder]; c != nil && !state.nominated {
		c.backOff, c.refusedUntil, c.gave = 0, time.Time{}, time.Time{} // it leads, if later than it was waited for
	}
	if was.holder != state.holder {
		o.preference = preference{}
		for _, c := range o.candidates {
			c.sparedUntil, c.spareBackOff = time.Time{}, 0
		}
	}
	o.lease, o.since = state, now
}

// wrote notes that stored has replaced the lock of that resourceVersion. A nominee may give the lock back before the next look at
// it, which then shows what was there before the nomination: by that alone it would be named again, and again.
func (o *Observer) wrote(now time.Time, over string, stored *coordinationv1.Lease) {
	o.unseen = ownWrite{lease: stateOf(stored), at: now, over: over}
	// Another coordinator may change it before the next look: that would not show that it was there. What one withdraws itself
	// puts nothing off.
	if who := preferred(stored); who != "" && who != o.preference.who {
		o.preference = preference{who: who, since: now}
	} else if who == "" {
		o.preference = preference{}
	}
}

// replaced notes that the API server has another version of a candidate's object by now: it was asked, or somebody else was faster.
func (o *Observer) replaced(now time.Time, object *coordinationv1beta1.LeaseCandidate) {
	if c := o.candidates[object.Name]; c != nil {
		c.replaced, c.replacedAt = object.ResourceVersion, now
	}
}

// outdated reports whether a candidate's object is to be seen anew before it is asked: what is sent about a version that is replaced is
// refused. A watch that has not told within an election duration may not be late but broken.
func (c *candidateState) outdated(now time.Time, object *coordinationv1beta1.LeaseCandidate) bool {
	return c.replaced != "" && c.replaced == object.ResourceVersion && now.Before(c.replacedAt.Add(ElectionDuration))
}

// overdue has a nomination that nobody answered, and that is over, count as refused.
func (o *Observer) overdue(now time.Time, l *coordinationv1.Lease) {
	if l == nil || !o.lease.nominated || now.Before(o.ends(l)) {
		return
	}
	if c := o.candidates[o.lease.holder]; c != nil && !c.refusedUntil.After(o.since) {
		c.refuse(now)
	}
}

// refuse notes that the candidate was named and gave the lock back without a write of its own.
func (c *candidateState) refuse(now time.Time) {
	c.backOff = min(max(2*c.backOff, 2*ElectionDuration), maxRefusalBackOff)
	c.refusedUntil = now.Add(c.backOff)
}

// ends is when the lease is over, unless it is renewed. A nominee has but an election duration to take it: whoever wrote it
// in may have given it a longer lease, and it may have ended before that.
func (o *Observer) ends(l *coordinationv1.Lease) time.Time {
	lease := time.Duration(value(l.Spec.LeaseDurationSeconds)) * time.Second
	if o.lease.nominated {
		lease = min(lease, ElectionDuration)
	}
	return o.since.Add(lease)
}

// holder is who has the lock, "" when its lease is over.
func (o *Observer) holder(now time.Time, l *coordinationv1.Lease) string {
	if !now.Before(o.ends(l)) {
		return ""
	}
	return value(l.Spec.HolderIdentity)
}

// spare notes that the candidate was preferred and did not come, and returns for how long it is not preferred again.
func (o *Observer) spare(now time.Time, who string) time.Duration {
	c := o.candidates[who]
	if c == nil {
		return ElectionDuration // it is gone, and cannot be preferred
	}
	c.spareBackOff = min(max(2*c.spareBackOff, 2*ElectionDuration), maxRefusalBackOff)
	c.sparedUntil = now.Add(c.spareBackOff)
	return c.spareBackOff
}
