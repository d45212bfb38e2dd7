package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Operator writes commands to the lock object of one election. Each command is guarded by the resourceVersion and has
// the requester and the reason. The permission to update the lock is the permission to give commands.
//
// A command applies to the current term only. Incumbent candidates execute it; istiod and client-go ignore it.
type Operator struct {
	// Lock is the lock of the election.
	Lock k8sresourcelock.Lock
	// Requester identifies the operator, for other people on call. It must not be empty.
	Requester string
}

var (
	// ErrNoLeader is returned if no leader can execute the command. Nothing was written.
	ErrNoLeader = errors.New("no leader can execute the command")
	// ErrNoHold is returned by Resume if there is no pause or transfer to end.
	ErrNoHold = errors.New("election is not paused")
	// ErrNoRequest is returned by Cancel if there is neither a request of an operator nor the hold of a transfer.
	ErrNoRequest = errors.New("there is no command to withdraw")
	// ErrHandoverUnderWay is returned if the leader has already accepted another request. Nothing was written.
	ErrHandoverUnderWay = errors.New("another handover is in progress")
	// ErrNotExecuted is returned if the command was written and had another outcome.
	ErrNotExecuted = errors.New("command was not executed")
)

var errNoLock = fmt.Errorf("%w: the lock does not exist", ErrNoLeader)

// Transfer makes the leader drain and write the candidate to as holder. It returns nil when that candidate leads. key is
// the key of the candidate; pass "" if it is unknown. For the time of hold, from one second to seven days, no candidate
// acquires the lock by rank. why is stored with the command.
//
// The error is ErrNoLeader if no incumbent leader holds the lock, and ErrHandoverUnderWay if it accepted another request.
// It is ErrNotExecuted if the leader refuses or does not accept in time, or if the candidate does not lead. A candidate
// that is not running, is unfit or does not campaign cannot lead: after RetryPeriod, any other candidate may acquire the
// lock. After any other error the command may still be executed, for example if ctx is done, or if the leader accepted
// and still holds the lock after eight lease durations.
func (o Operator) Transfer(ctx context.Context, to, key, why string, hold time.Duration) error {
	if err := errors.Join(record.ValidateIdentity(to), record.ValidateKey(key)); err != nil {
		return o.wrap("transfer", err)
	}
	return o.request(ctx, "transfer", record.Request{Identity: to, Key: key, Note: why}, hold)
}

// StepDown makes the leader drain and release the lock. It returns nil when the term has ended. The former leader does not
// campaign for coolDown, from one second to seven days, and at least RetryPeriod. If no other candidate acquires the
// lock for a lease, the leader campaigns again. It returns the same errors as Transfer.
func (o Operator) StepDown(ctx context.Context, why string, coolDown time.Duration) error {
	return o.request(ctx, "step-down", record.Request{Note: why}, coolDown)
}

// Pause keeps the holder, which may be istiod or client-go: no incumbent candidate requests or preempts the lock by rank.
// The pause ends after length, from one second to seven days, by Resume, or with the term. A lock that is released or
// expires is acquired as usual. The error is ErrNoLeader if the lock is free.
func (o Operator) Pause(ctx context.Context, why string, length time.Duration) error {
	seconds, err := holdSeconds(length)
	if err != nil {
		return o.wrap("pause", err)
	}
	return o.annotate(ctx, "pause", func(snap record.Snapshot, annotations map[string]string) error {
		if !snap.Held() {
			return ErrNoLeader
		}
		annotations[record.HoldAnnotation] = record.Hold{
			Holder: snap.Record.Holder, Transitions: snap.Record.Transitions, Seconds: seconds,
			Requester: o.Requester, Reason: record.HoldForPause, Note: why,
		}.Encode()
		return nil
	})
}

// Resume ends the hold of Pause or Transfer. It sets the hold to zero seconds, and the next write of the holder removes the
// hold. The error is ErrNoHold if there is none.
func (o Operator) Resume(ctx context.Context) error {
	return o.annotate(ctx, "resume", func(snap record.Snapshot, annotations map[string]string) error {
		if !snap.OnHold() {
			return ErrNoHold
		}
		o.endHold(snap, annotations)
		return nil
	})
}

// endHold sets the hold to zero seconds.
func (o Operator) endHold(snap record.Snapshot, annotations map[string]string) {
	h := snap.Annotations.Hold
	h.Seconds = 0
	h.Requester = o.Requester
	annotations[record.HoldAnnotation] = h.Encode()
}

// ValidateDuration returns an error if d is no valid duration of a hold or a cool-down.
func ValidateDuration(d time.Duration) error {
	if d < time.Second || d > record.MaxHold {
		return fmt.Errorf("duration %v: must be between %v and %v", d, time.Second, record.MaxHold)
	}
	return nil
}

// holdSeconds returns d in whole seconds, rounded up.
func holdSeconds(d time.Duration) (int, error) {
	if err := ValidateDuration(d); err != nil {
		return 0, err
	}
	return int((d + time.Second - 1) / time.Second), nil
}

// request writes a request that needs no rank, and waits for its outcome.
func (o Operator) request(ctx context.Context, verb string, r record.Request, hold time.Duration) error {
	seconds, err := holdSeconds(hold)
	if err != nil {
		return o.wrap(verb, err)
	}
	r.Reason = record.ForOperator
	r.Requester = o.Requester
	r.HoldSeconds = seconds
	err = o.annotate(ctx, verb, func(snap record.Snapshot, annotations map[string]string) error {
		if err := executable(snap, r.Identity); err != nil {
			return err
		}
		r.Holder = snap.Record.Holder
		r.Transitions = snap.Record.Transitions
		r.Seconds = max(1, int(snap.Record.Lease/time.Second))
		annotations[record.HandoverRequestAnnotation] = r.Encode()
		return nil
	})
	if err != nil {
		return err
	}
	return o.wrap(verb, o.await(ctx, r))
}

// executable returns why no leader would hand over to the candidate, or nil.
func executable(snap record.Snapshot, to string) error {
	holder := snap.Record.Holder
	r := snap.Annotations.Request
	switch {
	case !snap.Held():
		return fmt.Errorf("%w: the lock is free", ErrNoLeader)
	case !snap.Acting():
		return fmt.Errorf("%w: the holder %s has no valid marker, it is another elector or is settling", ErrNoLeader, holder)
	case to == holder:
		return fmt.Errorf("%s is already the leader. Use Pause to keep it.", to)
	case snap.Addressed() && r.Accepted:
		return fmt.Errorf("%w: to %q, requested by %s", ErrHandoverUnderWay, r.Identity, r.Requester)
	}
	return nil
}

// pollPeriod is the time between two reads of await.
const pollPeriod = 100 * time.Millisecond

// await polls the lock until the term that r is addressed to has ended and the next leader acts. It returns an error if
// that cannot be expected any more: the record was unchanged for a lease, the new holder has had no marker for two leases,
// or the leader accepted eight leases ago. In the last case istiod may have replaced the leader under the same identity.
func (o Operator) await(ctx context.Context, r record.Request) error {
	ticker := time.NewTicker(pollPeriod)
	defer ticker.Stop()
	clock := k8sleaderelection.NewClock(nil)
	now := func() core.Instant { return clock.Now().Mono }
	w := progress{r: r, lease: time.Duration(r.Seconds) * time.Second, began: now(), changed: now()}
	for {
		snap, _, err := o.read(ctx)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errNoLock):
			return fmt.Errorf("%w: the lock was deleted", ErrNotExecuted)
		default:
			if done, err := w.update(snap, err, now()); done || err != nil {
				return err
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("stopped waiting, the command may still be executed: %w", context.Cause(ctx)), err)
		}
	}
}

// progress is the progress of a command since it was written.
type progress struct {
	r          record.Request
	lease      time.Duration // of the last record
	began      core.Instant
	last       record.Record
	changed    core.Instant // last change of the record
	heldSince  core.Instant // when the candidate was first seen as holder; zero: it was not
	acceptedAt core.Instant // when the acceptance was first seen; zero: it was not
}

// maxDrainLeases is how many lease durations a drain may take.
const maxDrainLeases = 8

// update reports whether the command was executed, given the result of a read.
func (w *progress) update(snap record.Snapshot, err error, now core.Instant) (done bool, _ error) {
	if err == nil {
		if snap.Record != w.last {
			w.last = snap.Record
			w.changed = now
			w.lease = record.LongerLease(time.Second, snap.Record.Lease)
		}
		if done, err := w.outcome(snap, now); done || err != nil {
			return done, err
		}
	}
	if w.changed.Until(now) <= w.lease+time.Second {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("stopped waiting, the command may still be executed: reading the lock failed for %v: %w", w.lease, err)
	}
	return false, fmt.Errorf("%w: the lock was not renewed for its lease of %v; its holder is %q", ErrNotExecuted, w.lease, snap.Record.Holder)
}

// outcome reports whether the command was executed, given a snapshot of the lock.
func (w *progress) outcome(snap record.Snapshot, now core.Instant) (done bool, err error) {
	r := w.r
	switch {
	case r.AddressedTo(snap.Record):
		return false, w.pending(snap, now)
	case r.Identity == "":
		return true, nil
	case !snap.Held():
		return false, fmt.Errorf("%w: the leader released the lock, and %s did not acquire it", ErrNotExecuted, r.Identity)
	case snap.Record.Holder != r.Identity:
		return false, fmt.Errorf("%w: %s did not acquire the lock; %s holds it", ErrNotExecuted, r.Identity, snap.Record.Holder)
	}
	return w.leads(snap, now)
}

// pending returns why the addressed leader will not execute the command, or nil.
func (w *progress) pending(snap record.Snapshot, now core.Instant) error {
	r := w.r
	is := snap.Annotations.Request
	switch {
	case is.Refused != "":
		return fmt.Errorf("%w: %s refused: %s", ErrNotExecuted, r.Holder, is.Refused)
	case is.Identity != r.Identity || is.Requester != r.Requester:
		return fmt.Errorf("%w: it was replaced by a request of %s", ErrNotExecuted, is.Requester)
	case !is.Accepted && w.began.Until(now) >= time.Duration(r.Seconds)*time.Second:
		return fmt.Errorf("%w: %s did not accept within %d s", ErrNotExecuted, r.Holder, r.Seconds)
	case is.Accepted && w.acceptedAt == 0:
		w.acceptedAt = now
	case is.Accepted && w.acceptedAt.Until(now) > maxDrainLeases*w.lease:
		return fmt.Errorf("stopped waiting, the command may still be executed: %s accepted it %v ago and still holds the lock. "+
			"Its run functions did not return, or another elector uses its identity.", r.Holder, maxDrainLeases*w.lease)
	}
	return nil
}

// leads reports whether the candidate, which holds the lock, leads. An incumbent leader has a marker. Another elector keeps
// the nomination and leads from its first own write.
func (w *progress) leads(snap record.Snapshot, now core.Instant) (done bool, err error) {
	if w.heldSince == 0 {
		w.heldSince = now
	}
	switch {
	case snap.Acting(), snap.Named() && !snap.Nominated():
		return true, nil
	case !snap.Named() && w.heldSince.Until(now) > 2*w.lease:
		return false, fmt.Errorf("%w: %s has held the lock for %v without a marker", ErrNotExecuted, snap.Record.Holder, 2*w.lease)
	}
	return false, nil
}

// maxTries is how often a command is written again after a conflict.
const maxTries = 20

// annotate changes the annotations of the lock. After a conflict, change is called again with the new state. The conflict may be with
// the first attempt of the same write.
func (o Operator) annotate(ctx context.Context, verb string, change func(record.Snapshot, map[string]string) error) error {
	switch {
	case o.Lock == nil:
		return o.wrap(verb, errors.New("no Lock: set the lock of the election"))
	case o.Requester == "":
		return o.wrap(verb, errors.New("no Requester: set who gives the command"))
	}
	for try := 1; ; try++ {
		snap, base, err := o.read(ctx)
		if err != nil {
			return o.wrap(verb, err)
		}
		annotations := maps.Clone(base.Annotations)
		if annotations == nil {
			annotations = map[string]string{}
		}
		if !snap.Nominated() {
			// Another elector keeps its nomination forever. The hold shows that it is old, so it must be removed first.
			delete(annotations, record.NominatedAnnotation)
		}
		if err := change(snap, annotations); err != nil {
			return o.wrap(verb, err)
		}
		err = o.write(ctx, base, annotations)
		again := k8sresourcelock.IsConflict(err) || errors.Is(err, apirequest.ErrOneAnswer)
		if !again || ctx.Err() != nil || try == maxTries {
			return o.wrap(verb, err)
		}
	}
}

// callTimeout limits each request, because the context may have no deadline.
const callTimeout = 10 * time.Second

func (o Operator) write(ctx context.Context, base k8sresourcelock.Snapshot, annotations map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := k8sresourcelock.SendTwice(o.Lock).Annotate(ctx, base, annotations)
	return err
}

// read returns the lock, decoded and as stored. The error is errNoLock if it does not exist.
func (o Operator) read(ctx context.Context) (record.Snapshot, k8sresourcelock.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	base, err := k8sresourcelock.SendTwice(o.Lock).Read(ctx)
	switch {
	case err != nil:
		return record.Snapshot{}, base, err
	case base.Unreadable != nil:
		return record.Snapshot{}, base, base.Unreadable
	case !base.Exists:
		return record.Snapshot{}, base, errNoLock
	}
	snap, err := base.Decode()
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
