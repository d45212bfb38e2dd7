package diagnosis

import (
	"fmt"
	"slices"
	"strings"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

// unchosen returns why no coordinator chooses the leader of an election, although its candidates request that.
func (in *Input) unchosen(e inspect.Election) Finding {
	f := Finding{Severity: Problem, Elections: []string{id(e)}, Effect: "is not coordinated, although candidates request it", Cause: e.Uncoordinated}
	if e.Uncoordinated == leaderelection.Unserved {
		f.Severity, f.Advice = Warning, "Enable LeaseCandidates in the API server (docs/coordination.md)."
		return f
	}
	lock := slices.IndexFunc(in.Elections, func(o inspect.Election) bool {
		return o.Namespace == e.Namespace && o.Name == leaderelection.Coordinator && o.Lock == inspect.Lease
	})
	lease := fmt.Sprintf("Lease %s/%s", e.Namespace, leaderelection.Coordinator)
	// After its start, a coordinator writes nothing as long as the best candidate leads.
	best := e.Uncoordinated == leaderelection.NoCoordinator && in.Tags != nil && e.Led() && e.Revision == in.Tags.Default
	switch {
	case best && (e.Process != nil || lock >= 0 && in.Elections[lock].Led()):
		return Finding{}
	case e.Process != nil:
		f.Advice, f.Command = "Only doctor reads the Lease of the coordinator.", in.doctor(e)
		return f
	case lock >= 0 && in.Elections[lock].Led():
		o := in.Elections[lock]
		f.Cause += ", although " + o.Holder + " holds " + lease
		f.Advice, f.Command = "Only the log of the coordinator has the reason.", fmt.Sprintf("kubectl -n %s logs %s", o.Namespace, inspect.Pod(o.Holder, o.Name))
		return f
	case lock >= 0:
		f.Cause = lease + " has no holder (" + in.Elections[lock].StateText() + "), so no coordinator runs"
	default:
		f.Cause = lease + " does not exist, so no coordinator runs"
	}
	f.Advice = "Run the coordinator in the servers of a revision."
	in.enableCoordinator(e, &f)
	return f
}

// enableCoordinator adds the command that makes the first ready candidate run the coordinator, if the candidate is a pod.
func (in *Input) enableCoordinator(e inspect.Election, f *Finding) {
	i := slices.IndexFunc(e.Candidates, func(c inspect.Candidate) bool { return c.Strategy != "" && c.Readiness() == inspect.Ready })
	if i < 0 {
		return
	}
	c := e.Candidates[i]
	p := in.pod(c.Namespace, c.Identity)
	if p == nil {
		return
	}
	if release := in.Releases[p.Namespace+"/"+accountOf(p)]; release != "" {
		f.Command = release + " --set elections.coordinator=true"
	} else if deployment := deploymentOf(p); deployment != "" {
		f.Command = fmt.Sprintf("kubectl -n %s set env deployment/%s ENABLE_COORDINATOR=true", p.Namespace, deployment)
	}
	if strategy := c.Strategy; !strings.HasPrefix(strategy, "incumbent.dev/") {
		f.Advice += " They also need ENABLE_OLDEST_EMULATION_VERSION=true for the strategy " + strategy + "."
	}
}
