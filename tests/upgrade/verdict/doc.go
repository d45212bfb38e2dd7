// Package verdict judges leader elections by the audit logs of the API servers. The logs show which Pod's token wrote
// each object. Judge reports every write that was not made by the only leader.
//
//	audit logs ── Read ──▶ events ── Order ──▶ History ──┬─ Judge ──▶ Verdict
//	                                                      └─ Terms ──▶ Course.Check
//
// Writes are ordered by the resourceVersion that they produced, which is the order of etcd. Timestamps are used for
// figures and for lease durations only: an API server stamps a response when it sends it.
//
// A term begins with a candidate's own write that names it as holder. The rules are listed at type Rule.
package verdict
