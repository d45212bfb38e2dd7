package leaderelection

import "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/admin"

// Operator gives a person's orders about this election: transfer, step down, pause and
// resume. requester says who gives them, and must not be empty. They pass no gate: a process
// that does not lead may give them too.
func (l *LeaderElection) Operator(requester string) (admin.Operator, error) {
	if l.invalid != nil {
		return admin.Operator{}, l.invalid
	}
	return admin.Operator{Lock: l.lock(l.client.Kube(), nil), Requester: requester}, nil
}
