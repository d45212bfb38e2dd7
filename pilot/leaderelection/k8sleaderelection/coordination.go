package k8sleaderelection

import (
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// coordination reports when it is not a coordinator that chooses although one could, or the other way round.
func (r *reporter) coordination(c *change) {
	before, after := &c.before.Snap, &c.after.Snap
	if r.core.Coordinated && (after.ByCoordinator() || after.Preferred != "" || c.before.Absent != 0 && c.after.Absent == 0) {
		r.resolved(topicCoordinator, "a coordinator chooses who holds this lock again")
	}
	switch {
	case c.after.Known == core.Unread:
	case !r.core.Coordinated && after.Strategy:
		r.warnOnce(topicCoordinator, "uncoordinated", "a coordinator chooses who holds this lock, and this elector does not wait to be named: "+
			"it gives way to whom the coordinator prefers; coordinate all electors of the lock, or none", "strategy", c.lock.Strategy)
	case !r.core.Coordinated:
		r.resolved(topicCoordinator, "no coordinator chooses who holds this lock any more")
	case r.core.Uncoordinated(c.after, c.in.Now.Mono):
		r.warnOnce(topicCoordinator, "absent", "no coordinator names a leader, for three lease durations: the candidates' keys decide")
	case before.Strategy && !after.Strategy && after.Exists && before.UID == after.UID:
		r.warnOnce(topicStrategy, "wiped", "the lock's strategy was wiped by an elector that knows no coordinator, as istiod's: coordinate all electors of the lock, or none",
			"holder", after.Record.Holder)
	case after.Strategy:
		r.resolved(topicStrategy, "the lock has its strategy again")
	}
}
