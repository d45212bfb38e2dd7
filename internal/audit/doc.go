// Package audit judges leader elections by the audit logs of the API servers. The logs show which pod's token wrote each
// object. Judge reports every write that was not made by the leader.
//
//	audit logs ── Log.Read ──▶ Log ── Log.History ──▶ History ──┬─ Terms         ──▶ terms of a lock
//	                                                             └─ Judge ──▶ Result
//
// Writes are ordered by the resourceVersion that they produced, which is the order of etcd. A write without a logged
// response has no version. It is compared by time stamps, and the result is then approximate: a write counts as late only if
// its request arrived after the term had ended, by the clocks of the API servers.
//
// A log that lacks something, or that two rules explain differently, does not suffice: it neither convicts nor acquits.
//
// A term begins with a candidate's own write that names it as holder. The rules are listed at type Rule.
package audit
