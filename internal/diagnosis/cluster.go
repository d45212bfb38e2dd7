package diagnosis

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

// locks reports the problems of the elections.
func (in *Input) locks() (found []Finding) {
	for _, e := range in.Elections {
		for _, what := range e.Problems {
			if e.State == inspect.Unreadable && Ours(e) {
				continue // the cause of an election without a leader
			}
			found = append(found, Finding{
				Severity: Problem, Elections: []string{id(e)}, Cause: what, Advice: "Only its candidates can fix this: all need one readable lock of the same type.",
				Command: in.command("explain", e),
			})
		}
	}
	return orWell(found, in.Unread["locks"] == nil, "elections: %d; each has one readable lock", len(in.Elections))
}

// annotations reports annotations that prevent a leader or a change of the leader.
func (in *Input) annotations() (found []Finding) {
	for _, e := range in.Elections {
		for _, o := range e.Obstacles {
			f := Finding{Severity: Warning, Elections: []string{id(e)}, Cause: o.Annotation + ": " + o.Effect, Command: o.Remove}
			if o.Severe {
				f.Severity = Problem
			}
			found = append(found, f)
		}
	}
	return orWell(found, true, "no annotation prevents a leader")
}

// installations reports elections for the same objects in two namespaces.
func (in *Input) installations() (found []Finding) {
	where := map[string][]string{}
	for _, l := range in.Locks {
		if clusterWide[l.Name] && inspect.Of(l).Led() {
			where[l.Name] = append(where[l.Name], l.Namespace)
		}
	}
	for _, election := range slices.Sorted(maps.Keys(where)) {
		if namespaces := slices.Compact(slices.Sorted(slices.Values(where[election]))); len(namespaces) > 1 {
			found = append(found, Finding{
				Severity: Warning, Cause: fmt.Sprintf("%s is held in namespaces %v: each installation has its own leader for the same objects", election, namespaces),
				Advice: "Give each installation its own namespaces (discovery selectors), or remove an installation.",
			})
		}
	}
	return orWell(found, in.Locks != nil, "no election is used by two installations")
}

// permissions reports which permissions the user has.
func (in *Input) permissions() (found []Finding) {
	var allowed []string
	for _, p := range in.Permissions {
		if p.Allowed {
			allowed = append(allowed, p.Purpose)
			continue
		}
		found = append(found, Finding{
			Severity: Warning, Cause: fmt.Sprintf("user %s has no permission to %s %s (%s)", in.User, p.Verb, strings.TrimSuffix(p.Resource+"/"+p.Subresource, "/"), p.Purpose),
			Advice: "If needed, use a role with this permission.",
		})
	}
	if len(allowed) > 0 {
		found = append(found, well("user %s may: %s", in.User, strings.Join(allowed, ", ")))
	}
	return found
}

// maxClockSkew is the clock difference above which a warning is reported.
const maxClockSkew = 3 * time.Second

// clocks compares clocks with the API server's.
func (in *Input) clocks() (found []Finding) {
	ahead := maps.Clone(in.Ahead)
	for _, e := range in.Elections {
		// Only istiod and client-go write their own time. An incumbent never writes a lower time than the recorded one.
		if _, member := ahead[e.Holder]; ahead != nil && !member && e.Led() && (e.Program == "istiod" || e.Key == "" && e.State == inspect.Holds) {
			ahead[e.Holder] = e.Ahead
		}
	}
	for _, process := range slices.Sorted(maps.Keys(ahead)) {
		if by := ahead[process]; by.Abs() > maxClockSkew {
			direction := "ahead of"
			if by < 0 {
				direction = "behind"
			}
			found = append(found, Finding{
				Severity: Warning, Cause: fmt.Sprintf("the clock of %s is %v %s the API server", process, by.Abs().Round(time.Second), direction),
				Advice: "Correct the clock of its node (NTP). Elections do not depend on it, but logs and certificates do.",
			})
		}
	}
	switch c := in.Clock; {
	case c == nil:
	case c.Offset.Abs() <= maxClockSkew+c.PossibleError:
		found = append(found, well("the clocks of this machine and the API server agree within a few seconds"))
	default:
		found = append(found, Finding{
			Severity: Warning, Cause: fmt.Sprintf("the clock of this machine differs from the API server by %v", c.Offset.Round(time.Second)),
			Advice: "Correct it (NTP). Times that this program prints are wrong by that much.",
		})
	}
	return found
}

// defaultRevision compares the default revision with the processes and the validator.
func (in *Input) defaultRevision() []Finding {
	if in.Tags == nil {
		return nil
	}
	tag := in.Tags.Default
	if f := in.Tags.differ(); f.Cause != "" {
		return []Finding{f}
	}
	runs := slices.ContainsFunc(in.Candidates, func(c inspect.Candidate) bool { return c.Down == "" && !c.Late && c.Revision() == tag })
	led := slices.ContainsFunc(in.Elections, func(e inspect.Election) bool { return e.Led() && e.Revision == tag })
	ledBy := slices.IndexFunc(in.Elections, func(e inspect.Election) bool { return e.Led() && e.Ranked })
	f := Finding{Severity: Warning, Cause: "the default revision is " + tag + ", but no leader has it", Command: in.Tool + " plan" + in.at() + " --default-revision " + tag}
	var others []string
	for _, e := range in.Elections {
		if e.Led() && e.Ranked {
			others = append(others, id(e))
		}
	}
	switch {
	case tag == "":
		f = Finding{
			Severity: Warning, Cause: "no default revision: the first candidate leads, regardless of its revision",
			Advice: "Install the chart tags, or set a tag with istioctl tag set default.",
		}
	case led:
		f = well("the default revision is %s", tag)
	case runs && ledBy >= 0:
		e := in.Elections[ledBy]
		e.Candidates = slices.DeleteFunc(slices.Clone(e.Candidates), func(c inspect.Candidate) bool { return c.Revision() != tag })
		if !e.Replaceable() {
			f = in.obstruction(e)
			f.Severity, f.Elections, f.Effect = Warning, others, "does not have the default revision "+tag
		}
	case !runs && slices.ContainsFunc(in.Elections, func(e inspect.Election) bool { return e.Candidates != nil }):
		f = in.stoppedRevision(tag)
		f.Severity, f.Elections = Problem, others
		if f.Command == "" && ledBy >= 0 {
			f.Advice = "Start its pods, or make the revision of the leaders the default."
			f.Command = in.Tool + " default set" + in.at() + " " + in.Elections[ledBy].Revision
		}
	}
	return []Finding{f}
}

// stoppedRevision returns why no live process runs the default revision.
func (in *Input) stoppedRevision(tag string) Finding {
	cause := fmt.Sprintf("the default revision is %s, but no live process runs it", tag)
	for _, namespace := range slices.Sorted(maps.Keys(in.Pods)) {
		if f := in.crashOf(namespace, tag); f.Cause != "" {
			f.Cause = cause + ": " + f.Cause
			return f
		}
	}
	return Finding{Cause: cause}
}

// differ returns a finding if the webhook of the default tag and the validator have different revisions.
func (t *Tags) differ() Finding {
	if t.Validator == nil || tagging.Named(t.Validator.Labels) == t.Default {
		return Finding{}
	}
	validated := tagging.Named(t.Validator.Labels)
	f := Finding{Severity: Problem, Cause: fmt.Sprintf("%s has revision %s, but %s has %s",
		tagging.DefaultTagWebhook(""), cmp.Or(t.Default, "none"), tagging.DefaultValidator, cmp.Or(validated, "none"))}
	if revision := cmp.Or(t.Default, validated); revision != "" {
		f.Advice, f.Command = "Complete the change.", "istioctl tag set default --revision "+revision+" --overwrite"
	}
	return f
}

// conflicts reports tags that several revisions claim.
func (in *Input) conflicts() (found []Finding) {
	for _, namespace := range slices.Sorted(maps.Keys(in.Claims)) {
		_, conflicts := tagging.Resolve(namespace, in.Claims[namespace])
		for _, c := range conflicts {
			for _, other := range c.Others {
				found = append(found, Finding{
					Severity: Problem, Cause: c.String(), Command: other.EndCommand(),
					Advice: fmt.Sprintf("Correct the label %s of %s, or end its claim:", tagging.Label, other.Name),
				})
			}
		}
	}
	return orWell(found, in.Claims != nil, "each tag has one revision")
}

// flow checks the priority of renewals in the API server. With a low priority, a flood of other requests can make leaders lose
// their locks.
func (in *Input) flow() (found []Finding) {
	if in.Schemas == nil {
		return nil
	}
	for _, e := range in.Elections {
		if pod := in.pod(e.Namespace, e.Holder); pod != nil && e.Led() {
			f := renewalOf(e, pod).finding(in.Schemas, in.Levels)
			if f.Command != "" {
				f.Elections, f.Effect = []string{id(e)}, "can lose the leader"
			}
			found = append(found, f)
		}
	}
	if len(found) == 0 {
		found = append(found, Finding{Severity: Unknown, Cause: "no leader is a pod, so the priority of renewals is unknown"})
	}
	return found
}

// renewal is a write of a leader, as a FlowSchema matches it: to a lock in namespace, by the account of the namespace from.
type renewal struct {
	namespace, from, account string
	lock                     leaderelection.LockType
}

// accountOf returns the name of the service account of a pod.
func accountOf(pod *corev1.Pod) string { return cmp.Or(pod.Spec.ServiceAccountName, "default") }

func renewalOf(e inspect.Election, pod *corev1.Pod) renewal {
	return renewal{namespace: e.Namespace, from: pod.Namespace, account: accountOf(pod), lock: e.Kind()}
}

// lack returns why a priority level serves no request, or "".
func lack(name string, levels []flowcontrolv1.PriorityLevelConfiguration) string {
	i := slices.IndexFunc(levels, func(l flowcontrolv1.PriorityLevelConfiguration) bool { return l.Name == name })
	if i >= 0 && levels[i].Spec.Limited != nil && levels[i].Spec.Limited.NominalConcurrencyShares != nil && *levels[i].Spec.Limited.NominalConcurrencyShares == 0 {
		return "has no share of the API server's concurrency"
	}
	return ""
}

// schema returns the FlowSchema of a renewal, or nil. The API server ignores a FlowSchema whose priority level does not exist.
func (r renewal) schema(schemas []flowcontrolv1.FlowSchema, levels []flowcontrolv1.PriorityLevelConfiguration) (first *flowcontrolv1.FlowSchema) {
	for i, s := range schemas {
		exists := levels == nil || slices.ContainsFunc(levels, func(l flowcontrolv1.PriorityLevelConfiguration) bool {
			return l.Name == s.Spec.PriorityLevelConfiguration.Name
		})
		if exists && r.matches(s) && (first == nil || cmp.Or(cmp.Compare(s.Spec.MatchingPrecedence, first.Spec.MatchingPrecedence), cmp.Compare(s.Name, first.Name)) < 0) {
			first = &schemas[i]
		}
	}
	return first
}

// finding returns the priority of a renewal.
func (r renewal) finding(schemas []flowcontrolv1.FlowSchema, levels []flowcontrolv1.PriorityLevelConfiguration) Finding {
	who := fmt.Sprintf("renewals of service account %s/%s", r.from, r.account)
	s := r.schema(schemas, levels)
	if s == nil {
		return Finding{Severity: Unknown, Cause: who + " match no FlowSchema"}
	}
	level := s.Spec.PriorityLevelConfiguration.Name
	f := well("%s have FlowSchema %s, priority level %s", who, s.Name, level)
	switch lack := lack(level, levels); {
	case lack != "":
		f = Finding{Severity: Problem, Cause: fmt.Sprintf("%s have FlowSchema %s, whose priority level %s %s", who, s.Name, level, lack)}
	case s.Name == "service-accounts" || level == "workload-low" || level == "global-default":
		f.Severity = Warning
		f.Cause += ", and share a queue with requests of all pods"
	default:
		return f
	}
	f.Advice, f.Command = "Give them the priority of leader elections.", r.prioritize(*s)
	return f
}

func (r renewal) matches(s flowcontrolv1.FlowSchema) bool {
	return slices.ContainsFunc(s.Spec.Rules, func(rule flowcontrolv1.PolicyRulesWithSubjects) bool {
		return slices.ContainsFunc(rule.Subjects, r.is) && slices.ContainsFunc(rule.ResourceRules, r.writes)
	})
}

func (r renewal) is(s flowcontrolv1.Subject) bool {
	user, groups := fence.UserOf(r.from + "/" + r.account)
	switch {
	case s.ServiceAccount != nil:
		return s.ServiceAccount.Namespace == r.from && (s.ServiceAccount.Name == r.account || s.ServiceAccount.Name == "*")
	case s.User != nil:
		return s.User.Name == "*" || s.User.Name == user
	case s.Group != nil:
		return slices.Contains(append(groups, "*"), s.Group.Name)
	}
	return false
}

func (r renewal) writes(rule flowcontrolv1.ResourcePolicyRule) bool {
	group, resource := r.lock.Resource()
	has := func(all []string, s string) bool { return slices.Contains(all, s) || slices.Contains(all, "*") }
	return has(rule.Verbs, "update") && has(rule.APIGroups, group) && has(rule.Resources, resource) && has(rule.Namespaces, r.namespace)
}
