package k8sleaderelection

import (
	"fmt"
	"strings"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// event records an Event about the lock object. The lock prefixes the identity.
func (r *reporter) event(format string, args ...any) {
	r.le.hooks.Do(func() { r.le.lock.RecordEvent(fmt.Sprintf(format, args...)) })
}

// termEvent records the begin or the end of a term. Callers of client-go's API get the text of client-go, without the reason.
func (r *reporter) termEvent(record func(format string, args ...any), format string, args ...any) {
	if r.le.config.Callbacks.OnStartedLeading != nil {
		format, _, _ = strings.Cut(format, " (")
		args = nil
	}
	record(format, args...)
}

// warn records an Event of type Warning, or of type Normal if the lock does not support it.
func (r *reporter) warn(format string, args ...any) {
	r.le.hooks.Do(func() { r.le.lock.RecordWarning(fmt.Sprintf(format, args...)) })
}

// handover records Events about handovers and preemptions.
func (r *reporter) handover(c *change) {
	switch c.acknowledged() {
	case core.SendRequest:
		request := c.in.Snap.Annotations.Request
		r.event("requested a handover from %s (%s)", c.in.Snap.Record.Holder, request.Reason)
	case core.HandOver:
		r.event("handed over to %s", c.before.Flight.Record.Holder)
	case core.Acquire:
		if r.claim == core.Preempted {
			r.event("preempted %s", r.displaced)
		}
	case core.Renew:
		if was := c.before.Snap.Preferred; was != "" && c.in.Snap.Preferred == "" {
			r.warn("removed annotation %s: %s did not acquire the lock", record.PreferredHolderAnnotation, was)
		}
	case core.NoOp, core.Read, core.Release:
	}
	if c.beginsHandover() {
		switch request := c.after.Snap.Annotations.Request; {
		case request.Accepted && request.Identity == "":
			r.event("stepping down at the request of %s in annotation %s", request.Requester, record.HandoverRequestAnnotation)
		case request.Accepted:
			r.event("accepted the handover request of %s", request.Identity)
		default:
			r.event("handing over to %s, preferred by the coordinator", c.after.Snap.Preferred)
		}
	}
	if c.action.Op == core.Acquire {
		r.claim = c.action.Why
		r.displaced = c.after.Snap.Record.Holder
		if r.core.IsNominee(&c.after) {
			r.claim = core.Nominated
		}
	}
}
