package coordination

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	"k8s.io/utils/ptr"

	"incumbent.dev/incumbent/internal/record"
)

// observer records when the objects of an election last changed, by the coordinator's own clock. It compares times of other
// clocks only with each other. A new observer has seen no change: it treats each lease as valid and each candidate as
// unanswered. The observer of a Controller also has the changes that were seen before its term.
type observer struct {
	lease      leaseState
	since      time.Time // when lease was first seen
	candidates map[string]*candidateState
	preference preference
	pending    pendingWrite
}

// pendingWrite is the coordinator's last write of the lock, until the watch delivers it.
type pendingWrite struct {
	lease    leaseState
	at       time.Time
	replaced string // resourceVersion of the replaced Lease; empty if there is no pending write
}

type preference struct {
	name  string
	since time.Time
	// failed is the candidate of the previous preference, if it did not acquire the lock in time.
	failed string
}

// preferenceFailedAfter is the age at which a preference that another coordinator removed counts as failed. It is below
// electionDuration, because the clock of the other coordinator may be faster.
const preferenceFailedAfter = electionDuration * 9 / 10

// leaseState contains the fields of a Lease that change when its holder renews.
type leaseState struct {
	uid         string
	holder      string
	renewed     int64
	transitions int32
	nominated   bool
}

type candidateState struct {
	uid      string
	renewed  int64
	pinged   int64
	answered time.Time // when the last answer was seen
	askedAt  time.Time // when the current ping was first seen
	// unanswered is true if the candidate has not written renewTime since the current ping.
	unanswered bool
	// staleVersion is a resourceVersion of its object that was replaced at staleSince.
	staleVersion string
	staleSince   time.Time
	// refused is the back-off after a refused nomination, skipped after a preference that failed.
	refused, skipped backOff
	// releasedAt is the time of its own release, because it stopped or failed.
	releasedAt time.Time
}

// backOff doubles each time.
type backOff struct {
	last  time.Duration
	until time.Time
}

// extend starts the next back-off and returns its length.
func (b *backOff) extend(now time.Time) time.Duration {
	b.last = min(max(2*b.last, 2*electionDuration), maxBackOff)
	b.until = now.Add(b.last)
	return b.last
}

func stateOf(l *coordinationv1.Lease) leaseState {
	if l == nil {
		return leaseState{}
	}
	holder := ptr.Deref(l.Spec.HolderIdentity, "")
	return leaseState{
		uid: string(l.UID), holder: holder, renewed: micros(l.Spec.RenewTime), transitions: ptr.Deref(l.Spec.LeaseTransitions, 0),
		nominated: isNominated(l),
	}
}

// observe records the changes since the last call.
func (o *observer) observe(now time.Time, e election) {
	previous := o.candidates
	o.candidates = make(map[string]*candidateState, len(e.Candidates))
	for _, object := range e.Candidates {
		o.candidates[object.Name] = previous[object.Name].update(now, object)
	}
	stale := e.Lease != nil && e.Lease.ResourceVersion == o.pending.replaced
	if w := o.pending; w.replaced != "" && !stale {
		o.pending = pendingWrite{}
		o.observeLock(w.at, w.lease)
	}
	o.observeLock(now, stateOf(e.Lease))
	if name := preferredHolder(e.Lease); name != o.preference.name && !stale {
		previous := o.preference
		o.preference = preference{name: name, since: now}
		if now.Sub(previous.since) >= preferenceFailedAfter {
			o.preference.failed = previous.name
		}
	}
}

func (c *candidateState) update(now time.Time, object *coordinationv1beta1.LeaseCandidate) *candidateState {
	renewed := micros(object.Spec.RenewTime)
	pinged := micros(object.Spec.PingTime)
	if c == nil || c.uid != string(object.UID) {
		return &candidateState{uid: string(object.UID), renewed: renewed, pinged: pinged, askedAt: now, unanswered: isPinged(object.Spec)}
	}
	if c.pinged != pinged {
		c.pinged = pinged
		c.askedAt = now
		c.unanswered = true // also if pingTime is earlier than renewTime
	}
	if c.renewed != renewed {
		c.renewed = renewed
		c.answered = now
		c.unanswered = isPinged(object.Spec)
	}
	return c
}

func (o *observer) observeLock(now time.Time, state leaseState) {
	before := o.lease
	if before == state {
		return
	}
	former := o.candidates[before.holder]
	released := former != nil && before.uid == state.uid && state.holder == ""
	switch holder := o.candidates[state.holder]; {
	case released && before.nominated:
		former.refused.extend(now)
	case released:
		former.releasedAt = now
	case holder != nil && !state.nominated: // it leads, perhaps later than expected
		holder.refused = backOff{}
		holder.releasedAt = time.Time{}
	}
	if before.holder != state.holder {
		o.preference = preference{}
		for _, c := range o.candidates {
			c.skipped = backOff{}
		}
	}
	o.lease = state
	o.since = now
}

// wrote records that stored replaced the lock with the given resourceVersion. A nominee may release the lock before the watch
// delivers the nomination. Without this record the coordinator would not see a refusal and would name the same candidate again.
func (o *observer) wrote(now time.Time, replaced string, stored *coordinationv1.Lease) {
	o.pending = pendingWrite{lease: stateOf(stored), at: now, replaced: replaced}
	// Another coordinator may remove a preference before the watch delivers it. An own removal is no reason to wait.
	switch name := preferredHolder(stored); {
	case name == "":
		o.preference = preference{}
	case name != o.preference.name:
		o.preference = preference{name: name, since: now}
	}
}

// markStale records that the API server has a newer version of a candidate's object, because a ping succeeded or conflicted.
func (o *observer) markStale(now time.Time, object *coordinationv1beta1.LeaseCandidate) {
	if c := o.candidates[object.Name]; c != nil {
		c.staleVersion = object.ResourceVersion
		c.staleSince = now
	}
}

// isStale reports whether a ping of this version would conflict. If the watch delivers nothing within an election duration,
// it may be broken, and the ping is tried again.
func (c *candidateState) isStale(now time.Time, object *coordinationv1beta1.LeaseCandidate) bool {
	return c.staleVersion != "" && c.staleVersion == object.ResourceVersion && now.Before(c.staleSince.Add(electionDuration))
}

// expireNomination counts an unanswered nomination whose time is over as refused.
func (o *observer) expireNomination(now time.Time, l *coordinationv1.Lease) {
	if l == nil || !o.lease.nominated || now.Before(o.expiry(l)) {
		return
	}
	if c := o.candidates[o.lease.holder]; c != nil && !c.refused.until.After(o.since) {
		c.refused.extend(now)
	}
}

// expiry returns when the lease ends unless it is renewed. A nominee has at most an election duration to acquire the lock,
// even if the nomination has a longer lease.
func (o *observer) expiry(l *coordinationv1.Lease) time.Time {
	lease := record.LongerLease(0, time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0))*time.Second)
	if o.lease.nominated {
		lease = min(lease, electionDuration)
	}
	return o.since.Add(lease)
}

// holder returns the holder of the lock. It is empty if the lease expired.
func (o *observer) holder(now time.Time, l *coordinationv1.Lease) string {
	if !now.Before(o.expiry(l)) {
		return ""
	}
	return ptr.Deref(l.Spec.HolderIdentity, "")
}

// skip records that a preferred candidate did not acquire the lock, and returns the time for which it is not preferred again.
func (o *observer) skip(now time.Time, name string) time.Duration {
	c := o.candidates[name]
	if c == nil {
		return electionDuration // it is no candidate any more
	}
	return c.skipped.extend(now)
}
