package core

import "strings"

// DefaultRevision is the knowledge of which revision is the default one. Not yet synced and "there is
// none" are different values: the second is knowledge.
type DefaultRevision struct {
	Synced   bool
	Revision string // empty: there is none
}

// RemotePrefix marks the key of a candidate outside the cluster that holds the lock.
const RemotePrefix = "^"

// Outranks reports whether a candidate with key ours may take the lock from a live
// holder with key theirs: it is of the default revision and the holder is not; or
// both are of the same revision, the candidate is local and the holder remote.
// Without a known default nobody outranks by revision. The order is strict and has
// no cycle, for each value of the default.
func Outranks(ours, theirs string, def DefaultRevision) bool {
	ourRev, ourRemote := strings.CutPrefix(ours, RemotePrefix)
	theirRev, theirRemote := strings.CutPrefix(theirs, RemotePrefix)
	if def.Synced && def.Revision != "" && ourRev != theirRev {
		return ourRev == def.Revision
	}
	return ourRev == theirRev && ourRev != "" && !ourRemote && theirRemote
}
