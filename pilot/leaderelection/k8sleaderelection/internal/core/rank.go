package core

import "strings"

// DefaultRevision is the knowledge of which revision is the default one. Not yet synced and "there is
// none" are different values: the second is knowledge.
type DefaultRevision struct {
	Synced   bool
	Revision string // empty: there is none
}

// remotePrefix marks the key of a candidate outside the cluster that holds the lock.
const remotePrefix = "^"

// splitKey takes a key apart into revision and place.
func splitKey(key string) (revision string, remote bool) {
	revision, remote = strings.CutPrefix(key, remotePrefix)
	return revision, remote
}

// MakeKey is the key that a candidate writes into the lock. An own revision that is
// empty counts as "default"; a recorded key that is empty is no revision.
func MakeKey(revision string, remote bool) string {
	if revision == "" {
		revision = "default"
	}
	if remote {
		return remotePrefix + revision
	}
	return revision
}

// Outranks reports whether a candidate with key ours may take the lock from a live
// holder with key theirs: it is of the default revision and the holder is not; or
// both are of the same revision, the candidate is local and the holder remote.
// Without a known default nobody outranks by revision. The order is strict and has
// no cycle, for each value of the default.
func Outranks(ours, theirs string, def DefaultRevision) bool {
	ourRev, ourRemote := splitKey(ours)
	theirRev, theirRemote := splitKey(theirs)
	if def.Synced && def.Revision != "" && ourRev != theirRev {
		return ourRev == def.Revision
	}
	return ourRev == theirRev && ourRev != "" && !ourRemote && theirRemote
}
