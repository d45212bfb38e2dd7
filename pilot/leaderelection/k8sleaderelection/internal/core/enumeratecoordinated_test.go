package core

import "testing"

// coordinatedSnapshots is a lock of each kind that one meets whose holder a coordinator chooses.
func coordinatedSnapshots() map[string]Snapshot {
	all := map[string]Snapshot{}
	for name, of := range map[string]string{
		"coordinated, free": "free", "coordinated, absent": "absent", "coordinated, mine": "mine", "coordinated, mine, asked": "mine, asked",
		"coordinated, lower, hands over": "lower, hands over", "named me": "nominated me", "named another": "nominated",
	} {
		s := testSnapshots()[of]
		s.Strategy = s.Exists
		s.Notes.Nominated.Uncounted = s.Notes.Nominated != Nomination{}
		all[name] = s
	}
	preferred := all["coordinated, mine"]
	preferred.Preferred = "b"
	all["another is preferred"] = preferred
	return all
}

// enumerateCoordinated is enumerate for one that waits to be named and, where that has something to do, for one that does not.
func (c Config) enumerateCoordinated(t *testing.T, snap Snapshot) transitions {
	waits := c
	waits.Coordinated = true
	found := waits.enumerate(t, snap)
	if snap.Preferred != "" {
		found.add(c.enumerate(t, snap))
	}
	return found
}
