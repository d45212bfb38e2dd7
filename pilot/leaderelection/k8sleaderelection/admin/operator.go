package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/codec"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Operator gives a person's orders about one election. They are written onto the lock
// object, guarded by its version, with the requester, the reason and the time; the right
// to update the lock object is the right to give them. Candidates of ours obey; a peer
// such as istiod ignores them.
//
// Orders are about the term in which they were given, and count for nothing in the next.
type Operator struct {
	// Lock is the election's lock. It has to be k8sresourcelock.Versioned and Annotated, as
	// ConfigMapLock, LeaseLock and MultiLock are.
	Lock k8sresourcelock.Interface
	// Requester says who gives the orders, so that others on call understand. It must not
	// be empty.
	Requester string
}

var (
	// ErrNoLeader: there is no leader that could obey an order.
	ErrNoLeader = errors.New("no leader obeys orders there now")
	// ErrNoHold is returned by Resume when there is nothing to resume from.
	ErrNoHold = errors.New("no hold stands")
	// ErrHandoverUnderWay: the leader has accepted another request already.
	ErrHandoverUnderWay = errors.New("a handover is under way already")
	// ErrNotExecuted: an order was given and something else came of it.
	ErrNotExecuted = errors.New("the order was not obeyed")
)

var errNoLock = fmt.Errorf("%w: there is no lock", ErrNoLeader)

// Transfer has the leader drain and write the candidate with the identity to in as holder,
// and returns nil once that candidate leads. key is the candidate's rank, which is written
// with it; give "" if it is not known. For the time of hold, from one second to seven days,
// no candidate takes the lock back by rank. why is written beside the order.
//
// The error is ErrNoLeader if no leader of ours holds the lock, and ErrHandoverUnderWay if it
// has accepted another request already: nothing was ordered then. It is ErrNotExecuted if the
// leader refuses or does not accept in time, or if the candidate does not come to lead. A
// candidate that does not run, is unfit or does not campaign yet cannot take the lock; a
// RetryPeriod after the nomination any other may. Any other error after the order was written,
// as when ctx ends, or when a leader that has accepted still holds the lock eight leases
// later, leaves the order standing.
func (o Operator) Transfer(ctx context.Context, to, key, why string, hold time.Duration) error {
	if err := errors.Join(k8sresourcelock.ValidateIdentity(to), k8sresourcelock.ValidateKey(key)); err != nil {
		return o.wrap("transfer", err)
	}
	return o.ask(ctx, "transfer", core.Request{Identity: to, Key: key, Note: why}, hold)
}

// StepDown has the leader drain and release the lock, which any candidate may then take, and
// returns once the leader's term has ended. For coolDown, from one second to seven days, and
// for one RetryPeriod at the least, it does not campaign. Errors are those of Transfer.
func (o Operator) StepDown(ctx context.Context, why string, coolDown time.Duration) error {
	return o.ask(ctx, "step down", core.Request{Note: why}, coolDown)
}

// Pause keeps the holder, a peer too, where it is for length, from one second to seven days:
// no candidate of ours asks for the lock or preempts by rank. It ends with that time, with
// Resume or with the holder's term; it keeps no holder alive, and a lock that was given up or
// ran out is taken as ever. The error is ErrNoLeader if nobody holds the lock.
func (o Operator) Pause(ctx context.Context, why string, length time.Duration) error {
	seconds, err := holdSeconds(length)
	if err != nil {
		return o.wrap("pause", err)
	}
	return o.note(ctx, "pause", func(snap core.Snapshot, notes map[string]string) error {
		if !snap.Held() {
			return ErrNoLeader
		}
		notes[k8sresourcelock.HoldAnnotation] = codec.FormatHold(core.Hold{
			Holder: snap.Record.Holder, Transitions: snap.Record.Transitions, Seconds: seconds,
			Requester: o.Requester, Reason: core.HoldForPause, Note: why,
		})
		return nil
	})
}

// Resume lets rank count again: it ends what Pause or Transfer has left. The hold stays
// there with no time left, until the holder takes it away: of a lock of two objects the other
// one may still show the old one, and what is absent could not be told from what has not
// arrived there yet.
func (o Operator) Resume(ctx context.Context) error {
	return o.note(ctx, "resume", func(snap core.Snapshot, notes map[string]string) error {
		if !snap.OnHold() {
			return ErrNoHold
		}
		h := snap.Annotations.Hold
		h.Seconds, h.Requester = 0, o.Requester
		notes[k8sresourcelock.HoldAnnotation] = codec.FormatHold(h)
		return nil
	})
}

// holdSeconds is how a time is written into the lock.
func holdSeconds(d time.Duration) (int, error) {
	if d < time.Second || d > core.MaxHold {
		return 0, fmt.Errorf("for %v: give a time between %v and %v", d, time.Second, core.MaxHold)
	}
	return int((d + time.Second - 1) / time.Second), nil
}

// ask writes a request that needs no rank, and waits for its outcome.
func (o Operator) ask(ctx context.Context, verb string, r core.Request, hold time.Duration) error {
	seconds, err := holdSeconds(hold)
	if err != nil {
		return o.wrap(verb, err)
	}
	r.Reason, r.Requester, r.HoldSeconds = core.ForOperator, o.Requester, seconds
	err = o.note(ctx, verb, func(snap core.Snapshot, notes map[string]string) error {
		if err := obeys(snap, r.Identity); err != nil {
			return err
		}
		r.Holder, r.Transitions = snap.Record.Holder, snap.Record.Transitions
		r.Seconds = max(1, int(snap.Record.Lease/time.Second))
		notes[k8sresourcelock.HandoverRequestAnnotation] = codec.FormatRequest(r)
		return nil
	})
	if err != nil {
		return err
	}
	return o.wrap(verb, o.await(ctx, r))
}

// obeys reports why no holder would obey a request to hand over to that candidate.
func obeys(snap core.Snapshot, to string) error {
	holder, r := snap.Record.Holder, snap.Annotations.Request
	switch {
	case !snap.Held():
		return fmt.Errorf("%w: the lock is free", ErrNoLeader)
	case !snap.Acting():
		return fmt.Errorf("%w: the holder %s carries no valid marker: it is a peer, or is still settling", ErrNoLeader, holder)
	case to == holder:
		return fmt.Errorf("%s leads already; Pause keeps it there", to)
	case snap.Addressed() && r.Accepted:
		return fmt.Errorf("%w, to %q, asked for by %s", ErrHandoverUnderWay, r.Identity, r.Requester)
	}
	return nil
}

// orderPoll is how often await looks.
const orderPoll = 100 * time.Millisecond

// await reads the lock until the term that r is addressed to has ended, and the next
// leader acts. It gives up where that cannot be expected any more: a record that stays
// unchanged for a lease has no live holder; a holder that has had the lock for two without a
// marker does not read our notes; and one that has it for eight after it accepted may have
// been replaced by a peer under its name, which keeps our notes and does not read them.
func (o Operator) await(ctx context.Context, r core.Request) error {
	ticker := time.NewTicker(orderPoll)
	defer ticker.Stop()
	clock := k8sleaderelection.NewClock(nil)
	w := orderProgress{r: r, lease: time.Duration(r.Seconds) * time.Second, began: core.Instant(clock.Now().Mono), changed: core.Instant(clock.Now().Mono)}
	for {
		snap, _, err := o.read(ctx)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errNoLock):
			return fmt.Errorf("%w: the lock was deleted meanwhile", ErrNotExecuted)
		default:
			if done, err := w.update(snap, err, core.Instant(clock.Now().Mono)); done || err != nil {
				return err
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("gave up waiting; the order stands: %w", context.Cause(ctx)), err)
		}
	}
}

// orderProgress follows an order since it was given.
type orderProgress struct {
	r          core.Request
	lease      time.Duration // of the record last seen
	began      core.Instant
	last       core.Record
	changed    core.Instant // when the record last did
	heldSince  core.Instant // when the one named was first seen as the holder; 0: it was not
	acceptedAt core.Instant // when the order was first seen as accepted; 0: it was not
}

// maxDrainAwaited is for how many of its leases a drain is waited for.
const maxDrainAwaited = 8

// update says what has become of the request by what was read now.
func (w *orderProgress) update(snap core.Snapshot, err error, now core.Instant) (done bool, _ error) {
	if err == nil {
		if snap.Record != w.last {
			w.last, w.changed = snap.Record, now
			w.lease = max(time.Second, min(snap.Record.Lease, maxLeaseAwaited))
		}
		if done, err := w.outcome(snap, now); done || err != nil {
			return done, err
		}
	}
	if w.changed.Until(now) <= w.lease+time.Second {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("gave up waiting; the order stands: the lock could not be read for %v: %w", w.lease, err)
	}
	return false, fmt.Errorf("%w: nobody has written the lock for its lease of %v; it names %q", ErrNotExecuted, w.lease, snap.Record.Holder)
}

// maxLeaseAwaited bounds the lease that await reads from a record.
const maxLeaseAwaited = time.Hour

// outcome says what has become of the request by what the lock shows.
func (w *orderProgress) outcome(snap core.Snapshot, now core.Instant) (done bool, err error) {
	r, is := w.r, snap.Annotations.Request
	switch {
	case r.AddressedTo(snap.Record):
		switch {
		case is.Refused != "":
			return false, fmt.Errorf("%w: %s refuses: %s", ErrNotExecuted, r.Holder, is.Refused)
		case w.unsettled(snap, now):
		case is.Identity != r.Identity || is.Requester != r.Requester:
			return false, fmt.Errorf("%w: another request has taken its place, of %s", ErrNotExecuted, is.Requester)
		case !is.Accepted && w.began.Until(now) >= time.Duration(r.Seconds)*time.Second:
			return false, fmt.Errorf("%w: %s did not accept within %d s", ErrNotExecuted, r.Holder, r.Seconds)
		case is.Accepted && w.acceptedAt == 0:
			w.acceptedAt = now
		case is.Accepted && w.acceptedAt.Until(now) > maxDrainAwaited*w.lease:
			return false, fmt.Errorf("gave up waiting; the order stands: %s accepted it and holds the lock for %v since: its functions have not returned, or a process that does not know orders has its name",
				r.Holder, maxDrainAwaited*w.lease)
		}
		return false, nil
	case r.Identity == "":
		return true, nil
	case !snap.Held():
		return false, fmt.Errorf("%w: the lock was given up, and %s does not hold it", ErrNotExecuted, r.Identity)
	case snap.Record.Holder != r.Identity:
		return false, fmt.Errorf("%w: %s did not come, and %s has taken the lock", ErrNotExecuted, r.Identity, snap.Record.Holder)
	}
	return w.leads(snap, now)
}

// unsettled reports whether the order may only be out of sight. Of a lock of two objects it may stand in one alone; a holder that is
// releasing the lock has written that one already, and what is shown is the other, until it is written, too.
func (w *orderProgress) unsettled(snap core.Snapshot, now core.Instant) bool {
	between := snap.Halves == core.InFirst || snap.Halves == core.InSecond
	return between && snap.Annotations.Request == (core.Request{}) && w.began.Until(now) < time.Duration(w.r.Seconds)*time.Second
}

// leads says whether the one named, who holds the lock, leads. One of ours says so by its
// marker. A peer, which knows neither that nor the nomination, leaves the latter there, and
// leads from its first own write on.
func (w *orderProgress) leads(snap core.Snapshot, now core.Instant) (done bool, err error) {
	if w.heldSince == 0 {
		w.heldSince = now
	}
	switch {
	case snap.Acting(), snap.Named() && !snap.Nominated():
		return true, nil
	case !snap.Named() && w.heldSince.Until(now) > 2*w.lease:
		return false, fmt.Errorf("%w: %s holds the lock for %v and does not say that it leads", ErrNotExecuted, snap.Record.Holder, 2*w.lease)
	}
	return false, nil
}

// maxOrderTries bounds how often an order meets another write.
const maxOrderTries = 20

// note changes the notes beside the record. What is decided on a state that has passed
// is decided anew.
func (o Operator) note(ctx context.Context, verb string, change func(core.Snapshot, map[string]string) error) error {
	switch {
	case o.Lock == nil:
		return o.wrap(verb, errors.New("give the lock of the election that the order is about"))
	case o.Requester == "":
		return o.wrap(verb, errors.New("no Requester: say who gives the order"))
	}
	lock, ok := o.Lock.(k8sresourcelock.Annotated)
	if !ok {
		return o.wrap(verb, fmt.Errorf("a lock of type %T stores no notes", o.Lock))
	}
	for try := 1; ; try++ {
		snap, base, err := o.read(ctx)
		if err != nil {
			return o.wrap(verb, err)
		}
		notes := map[string]string{}
		maps.Copy(notes, base.Notes)
		if !snap.Nominated() {
			// A peer keeps a nomination that it has come after, and the hold tells that it
			// is old. It goes before the hold can.
			delete(notes, k8sresourcelock.NominatedAnnotation)
		}
		if err := change(snap, notes); err != nil {
			return o.wrap(verb, err)
		}
		_, err = o.annotate(ctx, lock, base, notes)
		if !k8sresourcelock.IsConflict(err) || ctx.Err() != nil || try == maxOrderTries {
			return o.wrap(verb, err)
		}
	}
}

// orderCallTimeout is how long one call for an order may take: an operator's context need not end.
const orderCallTimeout = 10 * time.Second

func (o Operator) annotate(ctx context.Context, lock k8sresourcelock.Annotated, base k8sresourcelock.Snapshot, notes map[string]string) (k8sresourcelock.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, orderCallTimeout)
	defer cancel()
	return lock.Annotate(ctx, base, notes)
}

// read shows the lock as the core sees it. One that nobody can hold is an error.
func (o Operator) read(ctx context.Context) (core.Snapshot, k8sresourcelock.Snapshot, error) {
	lock, ok := o.Lock.(k8sresourcelock.Versioned)
	if !ok {
		return core.Snapshot{}, k8sresourcelock.Snapshot{}, fmt.Errorf("a lock of type %T has no versions", o.Lock)
	}
	ctx, cancel := context.WithTimeout(ctx, orderCallTimeout)
	defer cancel()
	base, err := lock.Read(ctx)
	if err != nil {
		return core.Snapshot{}, base, err
	}
	if base.Unreadable != nil {
		return core.Snapshot{}, base, base.Unreadable
	}
	if !base.Exists {
		return core.Snapshot{}, base, errNoLock
	}
	snap, err := codec.New().Snapshot(base)
	return snap, base, err
}

func (o Operator) wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	name := "no lock"
	if o.Lock != nil {
		name = o.Lock.Describe()
	}
	return fmt.Errorf("%s: %s: %w", verb, name, err)
}
