package k8sleaderelection

import (
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// reporter says what happens: each transition once, each trouble once until it
// changes or is over, so that an API server that is away does not fill the log.
type reporter struct {
	le     *LeaderElector
	log    *slog.Logger
	metric SwitchMetric
	on     bool

	mu      sync.Mutex // calls report from the loop, watches from their own goroutine
	trouble map[string]string
}

func newReporter(le *LeaderElector) *reporter {
	return &reporter{
		le:      le,
		log:     le.logger().With("election", le.config.Name, "lock", le.config.Lock.Describe(), "identity", le.config.Lock.Identity()),
		metric:  newLeaderMetric(),
		trouble: map[string]string{},
	}
}

// turn reports what one pass of the loop changed.
func (r *reporter) turn(before, after core.State, lock k8sresourcelock.Snapshot) {
	r.record(before, after, lock)
	if after.Overdue && !before.Overdue {
		r.log.Error("run functions have outstayed the drain limit; the lock is not given away", "why", string(after.Why))
		if f := r.le.config.OnStuckDrain; f != nil {
			f()
		}
		if r.le.config.ExitOnStuckDrain {
			r.le.exit(1)
		}
	}
	if before.Phase == after.Phase {
		return
	}
	r.log.Info("election phase changed", "from", before.Phase.String(), "to", after.Phase.String(), "why", string(after.Why),
		"holder", after.Snap.Record.Holder, "key", after.Snap.Record.Key, "transitions", after.Snap.Record.Transitions, "token", r.le.view.Load().term.Token)
	if o := r.le.config.Observer; o != nil {
		o.Phase(r.le.config.Name, before.Phase.String(), after.Phase.String(), string(after.Why))
	}
	r.lead(after)
}

// lead reports the begin and the end of a term to metric and event log.
func (r *reporter) lead(s core.State) {
	leading := s.Phase == core.Leading
	if leading == r.on {
		return
	}
	r.on = leading
	if leading {
		r.metric.On(r.le.config.Name)
		r.le.config.Lock.RecordEvent("became leader")
		return
	}
	r.metric.Off(r.le.config.Name)
	r.le.config.Lock.RecordEvent("stopped leading")
}

// record reports a record that cannot be believed, and a process of the same name.
func (r *reporter) record(before, after core.State, lock k8sresourcelock.Snapshot) {
	if after.Learned == before.Learned {
		return
	}
	switch after.Snap.Content {
	case core.Unreadable:
		r.say("record", lock.Unreadable.Error(), "the lock's record cannot be read; it counts as held until unchanged for a lease", "err", lock.Unreadable)
	case core.Readable:
		// Beyond this the core counts a shorter time: see DESIGN, promise nothing-lost.
		if bound := r.leaseBound(); after.Snap.Record.Lease > bound {
			r.say("record", after.Snap.Record.Lease.String(), "the holder's lease duration is absurd; a shorter one counts",
				"recorded", after.Snap.Record.Lease, "counted", bound, "holder", after.Snap.Record.Holder)
			break
		}
		r.over("record", "the lock's record can be read again")
	case core.Missing:
	}
	if after.Twin && !before.Twin {
		r.log.Error("another live process uses this identity; give each process its own", "holder", after.Snap.Record.Holder)
	}
}

// answered reports the end of a call for the lock.
func (r *reporter) answered(phase core.Phase, c call) {
	if o := r.le.config.Observer; o != nil {
		o.Call(r.le.config.Name, c.op.String(), phase.String(), c.result.String(), c.took)
	}
	switch c.result {
	case core.OK:
		r.over("call", "the lock's API server answers again")
	case core.Conflict:
		if m, ok := r.metric.(SlowpathMetric); ok {
			m.SlowpathExercised(r.le.config.Name)
		}
	case core.Unknown:
		r.say("call", troubleOf(c), troubleText(c.err), "call", c.op.String(), "err", c.err)
	}
}

// fitness reports why this process should not lead; nil: it is fit.
func (r *reporter) fitness(err error) {
	if err == nil {
		r.over("fitness", "fit to lead again")
		return
	}
	r.say("fitness", err.Error(), "unfit to lead: a follower does not campaign, a leader hands over when it is asked", "err", err)
}

// watching reports a watch that cannot be had; nil: one that is up.
func (r *reporter) watching(err error) {
	if err == nil {
		r.over("watch", "the lock is being watched again")
		return
	}
	r.say("watch", string(apierrors.ReasonForError(err)), "the lock cannot be watched; polling until it can", "err", err)
}

// troubleOf tells troubles apart. An API server that is away is one for all calls; a
// missing permission is one for each verb.
func troubleOf(c call) string {
	reason := string(apierrors.ReasonForError(c.err))
	if apierrors.IsForbidden(c.err) {
		reason += " " + c.op.String()
	}
	return reason
}

func troubleText(err error) string {
	if apierrors.IsForbidden(err) {
		return "a permission on the lock is missing; still trying"
	}
	return "a call for the lock failed; still trying"
}

// say logs a trouble unless it is the one already known under topic.
func (r *reporter) say(topic, what, message string, args ...any) {
	r.mu.Lock()
	last, had := r.trouble[topic]
	known := had && last == what
	r.trouble[topic] = what
	r.mu.Unlock()
	if !known {
		r.log.Warn(message, args...)
	}
}

// over logs that a topic's trouble has ended, if there was one.
func (r *reporter) over(topic, message string) {
	r.mu.Lock()
	_, had := r.trouble[topic]
	delete(r.trouble, topic)
	r.mu.Unlock()
	if had {
		r.log.Info(message)
	}
}

// leaseBound is the longest lease of another that counts.
func (r *reporter) leaseBound() time.Duration {
	return r.le.config.core(false).LeaseBound()
}
