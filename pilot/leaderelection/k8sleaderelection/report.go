package k8sleaderelection

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"incumbent.dev/incumbent/internal/errlist"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// reporter writes logs, metrics and Events. It reports each phase change once, and each failure once until its cause
// changes or it ends. It calls code of the caller only through the Queue of the elector.
type reporter struct {
	le    *LeaderElector
	core  *core.Config
	log   *slog.Logger
	on    bool // in a term
	shown bool // value of the metric; only functions in the Queue use it
	slow  bool // the last renewal failed

	durations durations

	claim     core.Reason // why the lock was last acquired
	displaced string      // the holder before that
	failures  failures
}

func newReporter(ctx context.Context, le *LeaderElector, c *core.Config) *reporter {
	return &reporter{
		le:       le,
		core:     c,
		log:      le.logger(ctx).With("election", le.config.Name, "lock", le.config.Lock.Describe(), "identity", le.config.Lock.Identity()),
		failures: failures{now: le.clock.mono},
	}
}

// change describes one pass of the loop.
type change struct {
	in            core.Input
	before, after core.State
	action        core.Action
	lock          k8sresourcelock.Snapshot
	call          call   // of Replied
	err           error  // of a run function
	overdue       string // names of run functions that exceeded their limit now
	published     bool   // Status has changed
	newHolder     string // empty if the holder is the same
}

// denied reports whether a write met a conflict although no other candidate wrote. The core counts this as a failure.
func (c *change) denied() bool {
	return c.in.Kind == core.Replied && c.in.Result == core.Conflict &&
		(c.after.Effort.Writes.Fails > c.before.Effort.Writes.Fails || c.after.Effort.Requests.Fails > c.before.Effort.Requests.Fails)
}

// beginsHandover reports whether the leader starts to drain for a handover.
func (c *change) beginsHandover() bool {
	return c.after.Drain.HandOver && !c.before.Drain.HandOver
}

// acknowledged returns the own operation that this pass saw confirmed, or NoOp.
func (c *change) acknowledged() core.Op {
	if call := c.before.Flight; call.Succeeded(c.in) {
		return call.Op
	}
	return core.NoOp
}

// exitStuck is the exit code of ExitOnStuckDrain. A panic has another exit code.
const exitStuck = 3

// pass reports the changes of one pass of the loop.
func (r *reporter) pass(c *change) {
	after := &c.after
	if c.in.Kind == core.Replied {
		r.answered(c.before.Phase, c.call)
	}
	if c.err != nil {
		r.log.Error("run function failed; stepping down", "err", c.err)
	}
	if c.denied() {
		r.callFailed(c.call)
	}
	r.record(c)
	r.coordination(c)
	if after.Drain.Overdue && !c.before.Drain.Overdue {
		r.log.Error("run functions did not return within their limit; letting the lease expire", "why", string(after.Why), "functions", c.overdue)
		r.stuck()
	}
	r.handover(c)
	if c.before.Phase != after.Phase {
		r.phase(c)
		r.term(after, c.err)
	}
	r.durations.pass(r, c)
	if c.published {
		r.status()
	}
	r.callbacks(c)
}

// phase reports a change of the phase.
func (r *reporter) phase(c *change) {
	after := &c.after
	from := c.before.Phase.String()
	to := after.Phase.String()
	why := string(after.Why)
	log := r.log
	if after.Phase == core.Leading {
		// The phases alone do not show whether the lock was free or its lease expired.
		log = log.With("claim", string(r.claim))
	}
	log.Info("election phase changed", "from", from, "to", to, "why", why,
		"holder", after.Snap.Record.Holder, "key", after.Snap.Record.Key, "transitions", after.Snap.Record.Transitions, "token", r.le.view.Load().status.Term.Token)
	r.observe(func(o Observer, name string) { o.Phase(name, from, to, why) })
}

// status sets the metric and reports a change of Status. Each change sets the metric, because an earlier report may have been dropped.
func (r *reporter) status() {
	leads := r.on
	r.le.hooks.Do(func() {
		switch {
		case leads == r.shown:
		case leads:
			r.le.metric().On(r.le.config.Name)
		default:
			r.le.metric().Off(r.le.config.Name)
		}
		r.shown = leads
	})
	r.observe(func(o Observer, name string) { o.StatusChanged(name) })
}

// callbacks calls OnNewLeader and, in Campaign, OnStoppedLeading.
func (r *reporter) callbacks(c *change) {
	callbacks := &r.le.config.Callbacks
	if f := callbacks.OnStoppedLeading; f != nil && c.in.Kind == core.Drained && !r.core.OneCycle {
		r.le.hooks.GoAfter(f)
	}
	if f, holder := callbacks.OnNewLeader, c.newHolder; f != nil && holder != "" {
		r.le.hooks.GoAfter(func() { f(holder) })
	}
}

// stuck calls OnStuckDrain and then ends the process, if they are configured. If OnStuckDrain does not return, the process ends
// after RetryPeriod.
func (r *reporter) stuck() {
	config := &r.le.config
	exit := func() {}
	if config.ExitOnStuckDrain {
		exit = func() { r.le.exit(exitStuck) }
		time.AfterFunc(config.RetryPeriod, exit)
	}
	r.le.hooks.GoAfter(func() {
		if f := config.OnStuckDrain; f != nil {
			f()
		}
		exit()
	})
}

// term reports the begin and the end of a term. failure is the error of a run function that ended it, if any.
func (r *reporter) term(s *core.State, failure error) {
	leading := s.Phase == core.Leading
	if leading == r.on {
		return
	}
	r.on = leading
	why := s.Why
	switch {
	case leading:
		why = r.claim
		r.termEvent(r.event, "became leader (%s)", why)
	case s.Drain.Lost != core.NotLost:
		r.termEvent(r.warn, "stopped leading (%s)", why)
	case failure != nil:
		r.termEvent(r.warn, "stopped leading (%s): %s", why, briefly{failure})
	default:
		r.termEvent(r.event, "stopped leading (%s)", why)
	}
	r.observe(func(o Observer, name string) { o.Term(name, leading, string(why)) })
}

// maxBrief is below the limit of 1,024 bytes for the message of an Event.
const maxBrief = 800

// brief returns the text of an error on one line, short enough for an Event.
func brief(err error) string {
	return errlist.SingleLine(err.Error(), maxBrief)
}

// briefly formats an error of the caller when its text is needed, because Error may block.
type briefly struct{ err error }

func (b briefly) String() string { return brief(b.err) }

// observe calls the Observer, if there is one.
func (r *reporter) observe(report func(o Observer, name string)) {
	if o := r.le.config.Observer; o != nil {
		r.le.hooks.Do(func() { report(o, r.le.config.Name) })
	}
}

// record reports an unreadable record, durations that are too long, and a duplicate identity.
func (r *reporter) record(c *change) {
	before := &c.before
	after := &c.after
	lock := &c.lock
	if after.Learned == before.Learned {
		return
	}
	if lock.Unversioned() {
		r.warnOnce("store", "unversioned", "lock has no resource versions, for example because of client-go's fake clientset; electors of other processes are not excluded")
	}
	r.deletion(lock.Object)
	switch after.Snap.Content {
	case record.Unreadable:
		if r.warnOnce(topicRecord, lock.Unreadable.Error(), "lock record is unreadable; it counts as held until it is unchanged for a lease duration", "err", lock.Unreadable) {
			r.warn("failed to read the record: %v", lock.Unreadable)
		}
	case record.Readable:
		long := after.Snap.LongDurations(r.core.Lease)
		for _, d := range long {
			if r.warnOnce(topicRecord, d.Name()+d.Recorded.String(), "duration on the lock is too long", "field", d.Name(),
				"recorded", d.Recorded, "counted", d.Counts, "writer", lock.Writer(d.Field), "holder", after.Snap.Record.Holder) {
				r.warn("found a duration on the lock: %s", d.Report(&after.Snap, lock.Writer(d.Field)))
			}
		}
		if len(long) > 0 {
			break
		}
		r.resolved(topicRecord, "lock record is readable again")
	case record.Missing:
	}
	if after.Own.Duplicate && !before.Own.Duplicate {
		r.log.Error("another live process uses this identity. Give each process its own identity.", "holder", after.Snap.Record.Holder)
		r.warn("found another live process with the same identity")
	}
}

// deletion reports a lock that is being deleted. While finalizers keep the object, its leader continues to lead.
func (r *reporter) deletion(lock runtime.Object) {
	o, err := meta.Accessor(lock)
	if err != nil || o.GetDeletionTimestamp() == nil {
		r.resolved(topicDeletion, "lock is not being deleted any more")
		return
	}
	finalizers := strings.Join(o.GetFinalizers(), ", ")
	r.warnOnce(topicDeletion, finalizers, "lock is being deleted; the term ends when its finalizers are removed", "finalizers", finalizers,
		"command", fmt.Sprintf(`kubectl -n %s patch %s %s --type=merge -p '{"metadata":{"finalizers":null}}'`, o.GetNamespace(), kindOf(lock), o.GetName()))
}

// kindOf returns the kind of a lock object.
func kindOf(lock runtime.Object) record.Kind {
	if _, ok := lock.(*corev1.ConfigMap); ok {
		return record.ConfigMap
	}
	return record.Lease
}

// answered reports the end of a call.
func (r *reporter) answered(phase core.Phase, c call) {
	r.observe(func(o Observer, name string) { o.Call(name, c.op.String(), phase.String(), c.result.String(), c.took) })
	switch c.result {
	case core.OK:
		r.callSucceeded(c)
		r.witnessReleased(c.died)
	case core.Conflict:
	case core.Unknown, core.Refused:
		r.callFailed(c)
	}
	r.latency(c)
	r.renewed(c)
}

// renewed counts a success after a failed renewal.
func (r *reporter) renewed(c call) {
	switch c.op {
	case core.Renew:
		if r.slow && c.result == core.OK {
			r.le.hooks.Do(r.slowpath)
		}
		r.slow = c.result != core.OK
	case core.Acquire:
		r.slow = false
	}
}

func (r *reporter) slowpath() {
	if m, ok := r.le.metric().(SlowpathMetric); ok {
		m.SlowpathExercised(r.le.config.Name)
	}
}

// witnessReleased reports that this process acquired a lock that the witness of the former leader had released.
func (r *reporter) witnessReleased(died time.Duration) {
	if died == 0 {
		return
	}
	r.log.Info("acquired the lock after the process of the former leader ended; its witness released the lock", "why", string(core.HolderDied), "releasedAfter", died)
	r.observe(func(o Observer, name string) { o.ObserveDuration(name, WitnessRelease, died) })
}

// fitness reports the result of a fitness check.
func (r *reporter) fitness(err error) {
	if err == nil {
		r.resolved(topicFitness, "fit to lead again")
		return
	}
	r.warnOnce(topicFitness, err.Error(), "unfit to lead; a follower does not campaign, a leader accepts handover requests", "err", err)
}

// watching reports the state of the watch: nil if it is established, or why it failed.
func (r *reporter) watching(err error) {
	if err == nil {
		r.resolved(topicWatch, "watch of the lock is established again")
		return
	}
	r.warnOnce(topicWatch, string(apierrors.ReasonForError(err)), "failed to watch the lock; polling", "err", err)
}
