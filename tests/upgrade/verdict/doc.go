// Package verdict judges an upgrade by the audit logs of the API servers. Package internal/audit orders the writes and finds writes
// that the leader did not make. This package adds what only the tests know: which revision writes which objects, the
// desired state of each object, two revisions that write alternately, and the expected change of the leader after each act.
//
//	audit.History ──┬─ Judge ──▶ Verdict
//	                └─ Terms ──▶ Course.Check
package verdict
