package simulation

import "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"

// Numbers for the effort of some forty candidates that react to the same event.
const (
	// herdConflicts is the number of rejected writes for each event, herdBurst the number for events in a row.
	herdConflicts = 3
	herdBurst     = 20
	// learning is the number of races in a row that a candidate may lose without being counted.
	learning = 3
)

// herd has the tokens for rejected writes. Events add tokens.
type herd struct{ left int }

func (h *herd) event() { h.left = min(h.left+herdConflicts, herdBurst) }

// countRace is called for the answer to a write. Acquisitions and requests compete with the writes of other candidates.
func (c *checks) countRace(p *process, call *call, result core.Result) {
	if call.op != core.Acquire && call.op != core.SendRequest {
		return
	}
	switch result {
	case core.OK:
		p.lostRaces = 0
		return
	case core.Conflict:
		p.lostRaces++
	case core.Unknown, core.Refused:
	}
	if c.w.mode.Crowd == 0 || p.lostRaces <= learning {
		return
	}
	if c.herd.left--; c.herd.left < 0 {
		c.w.violate(Effort, "%v lost %d races in a row: candidates meet more than %d conflicts per event", p, p.lostRaces, herdConflicts)
		c.herd.left = herdBurst
	}
}
