package k8sresourcelock

// Successors is the recorded holder of a lock that is kept as a predecessor. It is the name of
// no process, so that none that restarts under a former holder's name takes itself for the leader.
const Successors = "incumbent-successors"

// KeptForSuccessors reports whether the lock is held only as a predecessor.
func (s Snapshot) KeptForSuccessors() bool {
	return s.Exists && s.Unreadable == nil && s.Record.HolderIdentity == Successors &&
		namesTerm(s.Annotations[PredecessorAnnotation], s.Record)
}
