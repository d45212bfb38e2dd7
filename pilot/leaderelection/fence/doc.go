// Package fence keeps a process that is not the leader from writing, by two means.
//
// The gate is the client's side of it: a transport that lets reads pass, and writes only
// while this process may act (the cover of its term, see package k8sleaderelection). It
// asks the clocks on each request, so
// that a process which was stopped for a while and then goes on cannot send what it
// had queued. Only an elector's loop moves a gate.
//
// The fence proper is the API server's side: policies that admit a guarded write only
// from the pod that the lock names, and that let the lock change hands only as electors
// do. Render makes them of Declarations and sends no request; package install puts them into
// a cluster and tries them. They hold whatever the process believes, and by whichever client
// it writes.
//
//	set, err := fence.Render("istio-system", fence.Declaration{
//		Election: "istio-leader", Namespace: "istio-system", Lock: fence.Lease,
//		ServiceAccounts: []string{"istio-system/istiod"},
//		Guards: []fence.Guard{{Group: "networking.k8s.io", Resources: []string{"ingresses/status"}, Wide: true}},
//	})
//
// The gate closes on time and knows its own client alone; the fence knows every client and
// follows the lock a moment late, without a clock. docs/safety.md has what each of them
// cannot do, and figures.
package fence
