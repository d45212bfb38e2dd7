package k8sleaderelection

import "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"

// DefaultRevision is the knowledge of which revision is the default one:
//
//	Synced   bool   // whether that is known
//	Revision string // the default revision; "" when there is none
//
// "Not yet synced" (the zero value) and "there is none" are different values.
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
// revision, it is local and the holder remote. While the default is not known, or there is
// none, no revision outranks another. An empty key outranks nobody.
func Outranks(ours, theirs string, d DefaultRevision) bool {
	return core.Outranks(ours, theirs, d)
}
