package core

// Successors is the holder of a lock that was kept by an earlier version.
const Successors = "incumbent-successors"

// Resumed returns the state with which the next run of an elector begins.
func (s State) Resumed() State {
	if s.Known != Unread {
		s.Known = Stale
	}
	s.Own.AcquireUnknown = false
	return State{
		Known: s.Known, Snap: s.Snap, Since: s.Since, Learned: s.Learned, Count: s.Count,
		Default: s.Default, Earlier: s.Earlier, Displaced: s.Displaced, Own: s.Own,
	}
}
