package diagnosis

import (
	"slices"
	"strings"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// OfProcess returns the findings about an election that a process observes. It reads only its locks, the member Leases and the default revision.
func OfProcess(e inspect.Election, d k8sleaderelection.DefaultRevision) []Finding {
	in := Input{Elections: []inspect.Election{e}, Candidates: e.Candidates}
	if d.Synced {
		in.Tags = &Tags{Default: d.Revision}
	}
	return Of(e, Findings(in))
}

// observed returns why an election has no acting leader, as far as only the process that observes it knows this. The cause contains no value
// that differs between elections with the same cause.
func (in *Input) observed(e inspect.Election) Finding {
	p := e.Process
	if p == nil {
		return Finding{}
	}
	f := Finding{Severity: Problem, Effect: "has no leader", Advice: "Only its log has the reason if this needs longer than a lease.", Command: logs(e, e.Holder)}
	unknown := e.State == inspect.Unread || e.State == inspect.Doubtful
	if unknown {
		f.Severity, f.Effect = Unknown, "may have no leader"
	}
	switch {
	case !unknown && e.Holder != "" && (e.Acting() || p.Leading):
	case byRights.MatchString(p.Failed):
		rights := byRights.FindStringSubmatch(p.Failed)
		lacks := in.rights(e, rights[1], rights[2], rights[3])
		f.Cause, f.Advice, f.Command = lacks.Cause, lacks.Advice, lacks.Command
	case p.Failed != "", e.State == inspect.Unread:
		f.Cause = "this process cannot read the lock"
		if p.Failed != "" {
			f.Cause = "requests of this process for the lock fail: " + strings.ReplaceAll(p.Failed, `"`+e.Name+`"`, `"…"`)
		}
		f.Advice, f.Command = "Only the API server or the network of this process has the reason. Test the API server from another machine:", ready
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

// ready is a command that reports whether the API server responds.
const ready = "kubectl get --raw '/readyz?verbose'"

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
