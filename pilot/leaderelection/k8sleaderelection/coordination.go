package k8sleaderelection

import (
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// coordination logs when the lock and the elector disagree on whether a coordinator chooses the leader.
func (r *reporter) coordination(c *change) {
	before := &c.before.Snap
	after := &c.after.Snap
	if r.core.Coordinated && (c.before.CoordinatorWrote(*after) || c.before.Absent && !c.after.Absent || c.before.Alone && !c.after.Alone) {
		r.resolved(topicCoordinator, "coordinator chooses the leader again")
	}
	switch {
	case c.after.Known == core.Unread:
	case !r.core.Coordinated && after.Strategy:
		r.warnOnce(topicCoordinator, "uncoordinated", "lock is coordinated and this elector is not; it ignores the strategy until a coordinator names a leader. "+
			"Coordinate all electors of the lock or none.", "strategy", c.lock.Strategy)
	case !r.core.Coordinated:
		r.resolved(topicCoordinator, "lock is no longer coordinated")
	case r.core.Uncoordinated(&c.after, c.in.Now.Mono):
		r.warnOnce(topicCoordinator, "absent", "no coordinator chooses the leader; candidates are ranked by key")
	case before.Strategy && !after.Strategy && after.Exists && before.UID == after.UID:
		r.warnOnce(topicStrategy, "removed", "strategy was removed from the lock, probably by istiod. Coordinate all electors of the lock or none.",
			"holder", after.Record.Holder)
	case after.Strategy:
		r.resolved(topicStrategy, "lock has a strategy again")
	}
}
