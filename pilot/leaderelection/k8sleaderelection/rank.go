package k8sleaderelection

import (
	"strings"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// DefaultRevision is the default revision as far as it is known. The zero value means that it is not known yet.
type DefaultRevision = core.DefaultRevision

// RevisionKey returns the key of a candidate: its revision, with the prefix "^" if the candidate is remote, which means
// outside the cluster of the lock. An empty revision becomes "default".
func RevisionKey(revision string, remote bool) string {
	if revision == "" {
		revision = "default"
	}
	if remote {
		return core.RemotePrefix + revision
	}
	return revision
}

// ParseRevisionKey returns the revision of a key, and whether its candidate is remote.
func ParseRevisionKey(key string) (revision string, remote bool) {
	return strings.CutPrefix(key, core.RemotePrefix)
}

// Outranks reports whether a candidate with key ours outranks a holder with key theirs. It does if it has the default
// revision and the holder has not, or if both have the same revision, the candidate is local and the holder is remote.
// If the default revision is unknown or none, no revision outranks another. An empty key outranks no key.
func Outranks(ours, theirs string, d DefaultRevision) bool {
	return core.Outranks(ours, theirs, d)
}
