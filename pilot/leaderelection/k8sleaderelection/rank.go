package k8sleaderelection

import "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"

// DefaultRevision is what is known of the default revision: Synced says whether it is known, and Revision which
// one it is, "" for none. "Not yet synced" and "there is none" are different values.
type DefaultRevision = core.DefaultRevision

// RevisionKey is the key of a candidate of that revision: the revision, with "^" in
// front when it is remote. An empty revision counts as "default".
func RevisionKey(revision string, remote bool) string {
	if revision == "" {
		revision = "default"
	}
	if remote {
		return core.RemotePrefix + revision
	}
	return revision
}

// Outranks reports whether a candidate with key ours goes before a holder with key
// theirs: it is of the default revision and the holder is not; or both are of the same
// revision, it is local and the holder remote.
func Outranks(ours, theirs string, d DefaultRevision) bool {
	return core.Outranks(ours, theirs, d)
}
