// Package verdict judges an upgrade by the audit logs of the API servers: which pod's token wrote what, and whether
// all of it was one controller's work at a time.
//
//	audit logs ── Read ──▶ events ── Order ──▶ writes ── Judge ──▶ Verdict
//
// Writes are ordered by the resourceVersion that they left, which is the order in which etcd took them. Time
// stamps order nothing: an API server stamps an answer when it sends it, and of two servers, or of two
// requests of one, the later write may be stamped first. Lengths of spans are differences of such stamps, and are
// figures, not judgements.
//
// Terms come from the same logs: a term begins with a candidate's own write that names it in the lock's record.
//
// What is convicted:
//
//   - unelected: a pod wrote what an election guards without ever having had a term;
//   - interleaved: it wrote after another pod's later term had begun to write;
//   - late: it wrote after its term had ended, or another's had begun;
//   - returned: an object was written by one revision, changed by another, and written back by the first, without
//     the default having come back to it;
//   - unwanted: at the end an object is not as wanted;
//   - incomplete: the log lacks writes, but for those whose answer a server that was killed did not log, or what was
//     to be judged never happened;
//   - requests: HTTP requests failed.
package verdict
