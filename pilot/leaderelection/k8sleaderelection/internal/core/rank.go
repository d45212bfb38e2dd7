package core

import "strings"

// DefaultRevision is the known default revision. Not synced and none are different values.
type DefaultRevision struct {
	// Synced is set if the default revision is known.
	Synced bool `json:"synced"`
	// Revision is the default revision, or "" if there is none.
	Revision string `json:"revision"`
}

// RemotePrefix marks the key of a candidate in another cluster than the lock.
const RemotePrefix = "^"

// Outranks reports whether a candidate with key ours may acquire the lock of a live holder with key theirs: it
// has the default revision and the holder has not, or both have the same revision and only the holder is
// remote. Without a known default, revisions do not count. For each default the order is strict and has no
// cycle.
func Outranks(ours, theirs string, def DefaultRevision) bool {
	ourRev, ourRemote := strings.CutPrefix(ours, RemotePrefix)
	theirRev, theirRemote := strings.CutPrefix(theirs, RemotePrefix)
	if def.Synced && def.Revision != "" && ourRev != theirRev {
		return ourRev == def.Revision
	}
	return ourRev == theirRev && ourRev != "" && !ourRemote && theirRemote
}

// outranks reports whether this candidate may acquire the lock of the live holder.
func (c Config) outranks(s *State) bool {
	if c.External {
		return s.Beats && !(s.Displaced.ByEqual && s.Snap.Record.Key == c.Key)
	}
	return c.Ranked && Outranks(c.Key, s.Snap.Record.Key, s.Default)
}

// isHighestRank reports whether no candidate can outrank this one.
func (c Config) isHighestRank(s *State) bool {
	rev, remote := strings.CutPrefix(c.Key, RemotePrefix)
	return !c.Ranked || !remote && (s.Default.Revision == "" || rev == s.Default.Revision)
}
