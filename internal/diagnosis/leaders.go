package diagnosis

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"incumbent.dev/incumbent/internal/errlist"
	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

// clusterWide contains the elections whose leader writes in all namespaces.
var clusterWide = map[string]bool{
	leaderelection.NamespaceController: true, leaderelection.ServiceExportController: true, leaderelection.IngressController: true,
	leaderelection.GatewayStatusController: true, leaderelection.StatusController: true, leaderelection.AnalyzeController: true,
	leaderelection.NodeUntaintController: true, leaderelection.ClusterTrustBundleController: true, leaderelection.InferencePoolController: true,
	leaderelection.IPAutoallocateController: true,
}

// Ours reports whether the election is an election of Istio, or a process of this project takes part.
func Ours(e inspect.Election) bool {
	return clusterWide[e.Name] || len(e.Candidates) > 0 || strings.HasPrefix(e.Name, leaderelection.GatewayDeploymentController+"-") ||
		strings.HasPrefix(e.Name, leaderelection.GatewayStatusController+"-")
}

// leaders reports elections without a live leader, and elections that would have none if their leader stopped.
func (in *Input) leaders() (found []Finding) {
	knows := true
	read := len(in.Elections) > 0
	locked := map[string]bool{}
	for _, e := range in.Elections {
		locked[id(e)] = true
		knows = knows && e.Known()
		read = read && in.Pods[e.Namespace] != nil
		if e.Uncoordinated != "" {
			if f := in.unchosen(e); f.Cause != "" {
				found = append(found, f)
			}
		}
		if in.Deletions[id(e)].Count >= minDeletions {
			found = append(found, in.deleted(e))
		}
		if f := in.leader(e); f.Cause != "" {
			f.Elections = []string{id(e)}
			found = append(found, f)
		}
	}
	for _, c := range in.Candidates {
		if where := c.Namespace + "/" + c.Election; !c.Late && !locked[where] {
			locked[where] = true
			f := Finding{
				Severity: Problem, Elections: []string{where}, Effect: "has no lock", Cause: cmp.Or(c.Refused, "its candidate "+c.Identity+" does not create it"),
				Advice: "Only its log has the reason.", Command: fmt.Sprintf("kubectl -n %s logs %s", c.Namespace, c.Identity),
			}
			if in.warmsUp(c) {
				f.Advice, f.Command = warmUp, ""
			}
			found = append(found, f)
		}
	}
	switch {
	case len(found) > 0 || !read:
	case knows:
		found = append(found, well("each election has a leader and another candidate that can lead"))
	default:
		found = append(found, well("each election has a leader"))
	}
	return found
}

// minDeletions is the number of deletions of a lock that is a problem.
const minDeletions = 3

// Deletions are deletions of a lock under a leader in the last ten minutes. Since is the time of the first one.
type Deletions struct {
	Count int
	Since time.Time
}

// deleted returns that a program deletes the lock again and again. The fence rejects this, unless the user may delete policies.
func (in *Input) deleted(e inspect.Election) Finding {
	deletions := in.Deletions[id(e)]
	f := Finding{
		Severity: Problem, Elections: []string{id(e)}, Effect: "loses its leaders",
		Cause: fmt.Sprintf("the lock %s was deleted under a leader %d times since %s", e.Object(), deletions.Count, deletions.Since.UTC().Format(time.RFC3339)),
	}
	switch set, d := in.guard(e); d.Mode {
	case fence.Deny:
		f.Cause += ", by a user that may delete policies, because the fence admits it"
		f.Advice = "Only the audit log of the API server has the name of the user: verb delete, object " + e.Object() + ". Most such users are administrators:"
		f.Command = administrators
	case "":
		f.Advice, f.Command = fenced, in.protect(e)
	default:
		f.Advice, f.Command = fenced, denying(set.Repair)
	}
	return f
}

// administrators is a command that prints who may delete policies in all clusters: the subjects of cluster-admin.
const administrators = `kubectl get clusterrolebindings -o jsonpath='{range .items[?(@.roleRef.name=="cluster-admin")]}{.subjects}{"\n"}{end}'`

const fenced = "A fence rejects this. Only the audit log of the API server has the name of the user."

// protect returns the command that installs a fence for the lock.
func (in *Input) protect(e inspect.Election) string {
	pods := in.pilots(e.Namespace, "")
	accounts, revisions := accountsOf(pods), sets.New[string]()
	for _, p := range pods {
		revisions.Insert(p.Labels[tagging.Label])
	}
	for _, account := range accounts {
		if release := in.Releases[account]; release != "" {
			return release + " --set fence.mode=deny"
		}
	}
	if len(accounts) == 0 {
		return in.command("history", e)
	}
	return fmt.Sprintf("%s fence install -n %s --mode deny --lock %s --service-account %s --revisions %s",
		in.Tool, e.Namespace, e.Kind(), strings.Join(accounts, ","), strings.Join(sets.List(revisions), ","))
}

// leader returns a finding if the election has no leader or no other candidate.
func (in *Input) leader(e inspect.Election) Finding {
	explain := in.command("explain", e)
	switch f := in.observed(e); {
	case f.Cause != "":
		return f
	case e.State == inspect.Doubtful:
		return Finding{Severity: Unknown, Effect: "may have no leader", Cause: e.StateText(), Command: fmt.Sprintf("%s --observe %ds", explain, e.LeaseSeconds+1)}
	case !e.Led() && in.otherHolder(e) != "":
		return Finding{
			Severity: Warning, Cause: fmt.Sprintf("the %s is not used, because the lock of another type has the leader %s", e.Lock, in.otherHolder(e)),
			Command: fmt.Sprintf("kubectl -n %s delete %s", e.Namespace, e.Object()),
		}
	case !e.Led() && e.Name == leaderelection.GatewayStatusController && len(e.Candidates) == 0:
		return Finding{} // the lock of old versions, which is released for good
	case !e.Led() && e.Name == leaderelection.Coordinator && len(e.Candidates) == 0:
		return Finding{} // see unchosen
	case !e.Led() && !Ours(e):
		return Finding{Severity: Warning, Effect: "has no leader", Cause: e.StateText(), Command: explain}
	case !e.Led():
		f := in.obstruction(e)
		f.Severity, f.Effect = Problem, "has no leader"
		return f
	}
	if in.foreign(e) {
		return Finding{
			Severity: Problem, Effect: "has a holder of another program", Cause: e.Holder + " is neither a pod of the namespace nor a candidate with a member Lease",
			Advice: "Only its owner can stop it. This command reports whether it renews the lock:", Command: fmt.Sprintf("%s --observe %ds", explain, e.LeaseSeconds+1),
		}
	}
	if why := in.gone(e); why != "" {
		f := Finding{Severity: Problem, Effect: NotLive, Cause: why + "; other candidates: " + in.others(e)}
		if in.otherHolder(e) == "" && (e.Replaceable() || !e.Known()) { // otherwise it is unknown which lock the candidates use
			f.Advice = fmt.Sprintf("A candidate acquires the lock when the lease of %d s expires.", e.LeaseSeconds)
		} else {
			f.Advice, f.Command = "Only another candidate can acquire the lock. Start its pods.", fmt.Sprintf("kubectl -n %s get deployments,pods", e.Namespace)
		}
		return f
	}
	return in.follower(e)
}

// follower returns a finding if the leader does not act, or no other candidate can lead.
func (in *Input) follower(e inspect.Election) Finding {
	isHolder := func(c inspect.Candidate) bool { return c.Identity == e.Holder }
	own := slices.DeleteFunc(slices.Clone(e.Candidates), func(c inspect.Candidate) bool { return !isHolder(c) })
	for _, f := range []Finding{in.rejection(e, own), in.terminating(e.Namespace)} {
		if f.Cause != "" {
			f.Severity, f.Effect = Problem, "will lose the leader"
			return f
		}
	}
	holder := func(does, advice string) Finding {
		return Finding{Severity: Warning, Cause: e.Holder + " " + does, Advice: advice, Command: logs(e, e.Holder)}
	}
	switch {
	case e.State == inspect.Nominated, e.State == inspect.Holds && len(own) > 0:
		return holder("holds the lock and does not act yet", "It acts when an earlier leader can no longer act. Only its log has the reason if this needs longer than a lease.")
	case e.Request != nil && e.Request.Accepted && (e.Process == nil || e.Process.HandoverWait > slowDrain):
		return holder("accepted a handover, and its run functions have not returned yet", "Only its log has the reason if this needs longer than its stop limit.")
	case len(own) > 0 && own[0].BackingOff:
		return holder("holds the lock, but it stopped leading and does not campaign yet", "Only its log has the reason.")
	case !e.Known() || e.Replaceable():
		f := in.rejection(e, e.Candidates)
		f.Severity, f.Effect = Warning, "has a candidate that cannot lead"
		return f
	}
	f := Finding{Cause: "other candidates: " + in.others(e)}
	if len(own) < len(e.Candidates) || in.crash(e).Cause != "" {
		f = in.obstruction(e)
	} else {
		f.Advice = "Run at least two replicas."
		if p := in.pod(e.Namespace, e.Holder); p != nil && deploymentOf(p) != "" {
			f.Command = scale(e.Namespace, deploymentOf(p))
		}
	}
	f.Severity, f.Effect = Warning, "has no candidate that can replace the leader"
	return f
}

// onlyDoctor is the advice of a process, which reads no pods.
const onlyDoctor = "Only doctor reads pods, rights, webhooks and the fence."

// doctor returns the command that names the cause that a process cannot observe.
func (in *Input) doctor(e inspect.Election) string { return in.Tool + " doctor -n " + e.Namespace }

// logs returns the command that prints the log of a candidate.
func logs(e inspect.Election, identity string) string {
	return fmt.Sprintf("kubectl -n %s logs %s", e.Namespace, identity)
}

// NotLive is the effect on an election whose holder cannot act, although its lease has not expired.
const NotLive = "has no live leader"

// slowDrain is the time after which a process reports a handover that it observes.
const slowDrain = 5 * time.Second

// otherHolder returns the leader of the lock with the same name and another type, or "".
func (in *Input) otherHolder(e inspect.Election) string {
	for _, o := range in.Elections {
		if id(o) == id(e) && o.Lock != e.Lock && o.Led() {
			return o.Holder
		}
	}
	return ""
}

// obstruction returns why no candidate other than the holder can lead.
func (in *Input) obstruction(e inspect.Election) Finding {
	for _, f := range []Finding{in.terminating(e.Namespace), in.excluded(e), in.rejection(e, e.Candidates), in.lacking(e), in.starved(e), in.stopped(e), in.blocking(e), in.slow()} {
		if f.Cause != "" {
			return f
		}
	}
	return in.idle(e)
}

// idle returns what is known about candidates that do not lead without a known obstruction.
func (in *Input) idle(e inspect.Election) Finding {
	ready := func(r inspect.Readiness) int {
		i := slices.IndexFunc(e.Candidates, func(c inspect.Candidate) bool { return c.Identity != e.Holder && c.Readiness() == r })
		if i < 0 && !e.Led() {
			i = slices.IndexFunc(e.Candidates, func(c inspect.Candidate) bool { return c.Readiness() == r })
		}
		return i
	}
	if f := in.crash(e); f.Cause != "" && ready(inspect.Ready) < 0 {
		return f
	}
	if e.State == inspect.Unreadable && len(e.Problems) > 0 {
		return Finding{Cause: e.Problems[0], Advice: "Only a candidate replaces it, after a lease duration. To follow it:", Command: in.command("watch", e)}
	}
	f := Finding{Cause: "other candidates: " + in.others(e)}
	if !e.Led() {
		f.Cause = e.StateText() + "; candidates: " + in.others(e)
	}
	for _, readiness := range []inspect.Readiness{inspect.Ready, inspect.CoolingDown, inspect.Cold, inspect.Unfit} {
		switch i := ready(readiness); {
		case i < 0:
			continue
		case readiness == inspect.CoolingDown:
			f.Advice = "The candidate campaigns again after its cool-down."
		case readiness == inspect.Cold && slices.ContainsFunc(e.Candidates, in.warmsUp):
			f.Advice = warmUp
		case readiness == inspect.Ready && e.State == inspect.Expired:
			f.Advice = fmt.Sprintf("A candidate waits for its own lease, if that is longer than %d s. Only its log has the reason if it waits longer.", e.LeaseSeconds)
			f.Command = logs(e, e.Candidates[i].Identity)
		case (readiness == inspect.Ready || readiness == inspect.Cold) && e.Process != nil:
			f.Advice, f.Command = onlyDoctor, in.doctor(e)
		default:
			f.Advice = "Only the log of the candidate has the reason."
			f.Command = logs(e, e.Candidates[i].Identity)
		}
		return f
	}
	f.Advice = "Start the pods of a candidate. Only their logs have the reason if they run."
	f.Command = fmt.Sprintf("kubectl -n %s get deployments,pods", e.Namespace)
	if e.Process != nil {
		f.Advice, f.Command = onlyDoctor, in.doctor(e)
	}
	return f
}

// terminating returns why a namespace is being deleted.
func (in *Input) terminating(namespace string) Finding {
	for _, s := range in.Spaces {
		if why := Terminating(&s); s.Name == namespace && why != "" {
			return Finding{Cause: why, Command: "kubectl get namespace " + namespace + " -o yaml", Advice: "Only the owners of its finalizers can end this. Until then, locks cannot be created."}
		}
	}
	return Finding{}
}

// Terminating returns that a namespace is being deleted, and the cause of the delay. It returns "" for other namespaces.
func Terminating(s *corev1.Namespace) string {
	if s.DeletionTimestamp == nil {
		return ""
	}
	text := fmt.Sprintf("namespace %s is being deleted (%s)", s.Name, corev1.NamespaceTerminating)
	for _, c := range s.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			text += ": " + errlist.SingleLine(c.Message, maxMessage)
		}
	}
	return text
}

// maxNames is the maximum number of candidates that are listed by name.
const maxNames = 3

// Few reports whether the candidates of an election are listed by name, also if not all names are requested.
func Few(e inspect.Election) bool { return len(e.Candidates) <= maxNames+1 }

func (in *Input) others(e inspect.Election) string {
	return Others(e, in.Wide)
}

// Others describes the candidates of an election other than its leader: a few by name, more by revision and state. wide lists all by name.
func Others(e inspect.Election, wide bool) string {
	var names []string
	groups := map[string]int{}
	for _, c := range e.Candidates {
		if c.Identity != e.Holder || !e.Led() {
			names = append(names, fmt.Sprintf("%s (%s)", c.Identity, c.Readiness()))
			groups[fmt.Sprintf("of %s (%s)", cmp.Or(c.Revision(), "no revision"), c.Readiness())]++
		}
	}
	switch {
	case e.Candidates == nil:
		return "unknown"
	case len(names) == 0:
		return "none"
	case wide || Few(e):
		return strings.Join(names, ", ")
	}
	var words []string
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		words = append(words, fmt.Sprintf("%d %s", groups[group], group))
	}
	return strings.Join(words, ", ")
}
