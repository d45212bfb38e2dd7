package leaderelection

import "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/admin"

// Operator returns the operator commands of this election: transfer, step down, pause and resume.
// requester is the name of the operator and must not be empty. The commands are not gated, so a
// process that does not lead can run them. With a held Predecessor, they are commands for its lock. The error is that of an
// invalid Config.
func (l *LeaderElection) Operator(requester string) (admin.Operator, error) {
	if l.invalid != nil {
		return admin.Operator{}, l.invalid
	}
	lock := l.lock(l.client.Kube(), nil)
	if h := l.held.Load(); h != nil {
		lock = l.predecessorLock(l.client.Kube())
	}
	return admin.Operator{Lock: lock, Requester: requester}, nil
}
