package diagnosis

import (
	"slices"
	"strings"

	"incumbent.dev/incumbent/internal/inspect"
)

// observed returns why an election has no acting leader, as far as only the process that observes it knows this. The cause contains no value
// that differs between elections with the same cause.
func (in *Input) observed(e inspect.Election) Finding {
	p := e.Process
	if p == nil {
		return Finding{}
	}
	f := Finding{Severity: Problem, Effect: "has no leader", Command: in.command("explain", e)}
	unknown := e.State == inspect.Unread || e.State == inspect.Doubtful
	if unknown {
		f.Severity, f.Effect = Unknown, "may have no leader"
	}
	switch {
	case !unknown && e.Holder != "" && (e.Acting() || p.Leading):
	case p.Failed != "":
		f.Cause = "requests of this process for the lock fail: " + strings.ReplaceAll(p.Failed, `"`+e.Name+`"`, `"…"`)
	case e.State == inspect.Unread:
		f.Cause = "this process cannot read the lock"
	case !e.Led() || unknown:
	case e.Former != "":
		f.Cause = "the holder waits until an earlier leader can no longer act"
	case e.State == inspect.Nominated:
		f.Cause = "the nominated holder has not acquired the lock"
	default:
		f.Cause = "the holder does not act"
	}
	return f
}

// addProcess adds the refusal that the observing process received to its candidate, because its member Lease can be late or missing.
func addProcess(e inspect.Election) inspect.Election {
	if e.Process == nil || e.Process.Rejected == "" {
		return e
	}
	e.Candidates = slices.Clone(e.Candidates)
	own := inspect.Pod(e.Process.Identity, e.Name)
	i := slices.IndexFunc(e.Candidates, func(c inspect.Candidate) bool { return c.Identity == own })
	if i < 0 {
		i = len(e.Candidates)
		e.Candidates = append(e.Candidates, inspect.Candidate{Namespace: e.Namespace, Election: e.Name, Identity: own, Key: e.Process.Key, Warm: true, Fit: true})
	}
	e.Candidates[i].Refused = e.Process.Rejected
	return e
}
