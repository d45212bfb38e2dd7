package inspect

import (
	"time"

	"incumbent.dev/incumbent/internal/members"
)

// memberTolerance is by how much the clocks of members, and the one that they are judged by, may differ.
const memberTolerance = time.Minute

// Candidates returns the elections' candidates, by the members' own accounts. One whose last report is too old at now is
// late; take now from the API server's clock if there is a choice.
func Candidates(all []members.Member, now time.Time) (candidates []Candidate) {
	for _, m := range all {
		for _, e := range m.Elections {
			if !e.Candidate {
				continue
			}
			candidates = append(candidates, Candidate{
				Namespace: m.Namespace, Election: e.Name, Identity: m.Identity, Key: m.Key(), Warm: e.Warm, Fit: e.Fit,
				Late: m.Late(now, memberTolerance), PodUID: m.PodUID, Version: m.Version,
			})
		}
	}
	return candidates
}
