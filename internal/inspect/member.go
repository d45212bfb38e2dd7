package inspect

import (
	"cmp"
	"time"

	"incumbent.dev/incumbent/internal/members"
)

// memberTolerance is the clock difference that is tolerated between members and now.
const memberTolerance = time.Minute

const (
	// NoWitness is the value of Candidate.Witness without a witness.
	NoWitness = "none"
	// UnreachableWitness means that the configured witness does not respond.
	UnreachableWitness = "unreachable"
)

// Candidates returns the candidates that the members describe. A candidate is late if its member Lease was not renewed in time at
// now, which should be the time of the API server.
func Candidates(all []members.Member, now time.Time) (candidates []Candidate) {
	for _, m := range all {
		seen := map[string]bool{} // the first one counts
		for _, e := range m.Elections {
			if seen[e.Name] || !e.Candidate {
				continue
			}
			seen[e.Name] = true
			candidates = append(candidates, Candidate{
				Namespace: m.Namespace, Election: e.Name, Identity: m.Identity, Key: m.Key(), Warm: e.Warm, Fit: e.Fit,
				Late: m.Late(now, memberTolerance), PodUID: m.PodUID, Version: m.Version, Strategy: e.Strategy, Witness: cmp.Or(m.Witness, NoWitness),
				BackingOff: e.BackingOff, Uncoordinated: oneLine(e.Uncoordinated), Refused: oneLine(e.Refused),
			})
		}
	}
	return candidates
}
