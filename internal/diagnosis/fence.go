package diagnosis

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/internal/inspect"
)

// Fence contains the installed policies of this project, their bindings by the name of the policy, and the sets of the namespaces.
type Fence struct {
	Policies []admissionv1.ValidatingAdmissionPolicy
	Bindings map[string]admissionv1.ValidatingAdmissionPolicyBinding
	Sets     []install.Discovered
}

// fences checks the installed policies. The command fence verify tests their effect.
func (in *Input) fences() (found []Finding) {
	if in.Fence == nil {
		return in.selfTest()
	}
	found = in.missing()
	guards := 0
	permanent := map[string]bool{}
	lenient, admitted := map[string]int{}, map[string][]string{}
	for _, p := range in.Fence.Policies {
		set := p.Labels[fence.SetLabel]
		b, ok := in.Fence.Bindings[p.Name]
		switch {
		case strings.HasPrefix(p.Name, fence.KeepPrefix):
			permanent[p.Name] = ok
		case set == "":
		case !ok:
			found = append(found, Finding{Severity: Problem, Cause: "policy " + p.Name + " has no binding and no effect", Command: in.repair(set)})
		default:
			if in.concerns(p) {
				guards++
			}
			found = append(found, in.lockless(p, b)...)
			if !slices.Contains(b.Spec.ValidationActions, admissionv1.Deny) {
				lenient[set]++
				admitted[set] = append(admitted[set], in.guarded(fence.Locks(&p))...)
			}
		}
	}
	for _, set := range slices.Sorted(maps.Keys(lenient)) {
		found = append(found, Finding{Severity: Warning, Elections: sets.List(sets.New(admitted[set]...)), Command: denying(in.repair(set)), Cause: fmt.Sprintf(
			"the fence %s has policies without the action Deny (%d): the API server reports writes of non-leaders and admits them", set, lenient[set])})
	}
	found = append(found, in.trap(permanent)...)
	if guards == 0 {
		where := strings.Replace(in.at(), "-n", "for namespace", 1)
		return append(found, Finding{
			Severity: Unknown, Cause: "no fence installed" + where + ": only the client rejects writes of a process that does not lead",
			Advice: fmt.Sprintf("Install the chart with fence.mode=deny, or run %s fence install (docs/fence.md).", in.Tool),
		})
	}
	f := well("%d fence policies have bindings", guards)
	f.Advice, f.Command = "To test their effect:", in.Tool+" fence verify"+in.at()
	return append(found, f)
}

// selfTest reports what a process observed about the fence.
func (in *Input) selfTest() (found []Finding) {
	for _, e := range in.Elections {
		if e.Process != nil && e.Process.Fence != nil && !e.Process.Fence.InEffect && e.Process.Fence.Answer == fence.Admitted {
			found = append(found, Finding{
				Severity: Warning, Elections: []string{id(e)}, Cause: "the API server admits writes of processes that do not lead", Advice: "Only doctor reads the policies of the fence.", Command: in.doctor(e),
			})
		}
	}
	return found
}

// guard returns the fence of a lock, and its declaration with a mode. Without a fence, the mode is "".
func (in *Input) guard(e inspect.Election) (install.Discovered, fence.Declaration) {
	if in.Fence != nil {
		for _, set := range in.Fence.Sets {
			for _, d := range set.Declarations {
				if !d.WithoutLockGuard && slices.Contains(d.Locks(), string(e.Kind())+" "+id(e)) {
					d.Mode = cmp.Or(d.Mode, fence.Deny)
					return set, d
				}
			}
		}
	}
	return install.Discovered{}, fence.Declaration{}
}

// excluded returns the fence in mode deny that names no service account of the pods of an election.
func (in *Input) excluded(e inspect.Election) Finding {
	var pods []*corev1.Pod
	for _, c := range e.Candidates {
		if p := in.pod(c.Namespace, c.Identity); p != nil {
			pods = append(pods, p)
		}
	}
	accounts := accountsOf(pods)
	set, d := in.guard(e)
	if d.Mode != fence.Deny || len(accounts) == 0 || slices.ContainsFunc(accounts, d.MayHold) {
		return Finding{}
	}
	f := Finding{
		Cause: fmt.Sprintf("the fence %s names %s and not the service accounts of the pods (%s), so the API server rejects them as holders",
			set.Name, strings.Join(slices.Concat(d.ServiceAccounts, d.Others), ", "), strings.Join(accounts, ", ")),
		Advice:  "Remove the fence, and install it with the service accounts of the pods.",
		Command: in.Tool + " fence remove --set " + set.Name,
	}
	if strings.HasPrefix(set.Repair, "helm ") {
		f.Command = set.Repair + " --set fence.mode=none"
	}
	return f
}

// concerns reports whether the policy guards a lock of the selected namespaces. Other installations have their own fences.
func (in *Input) concerns(p admissionv1.ValidatingAdmissionPolicy) bool {
	return slices.ContainsFunc(in.Namespaces(), func(namespace string) bool { return fence.Concerns(&p, namespace) })
}

// repair returns the command that repairs a set.
func (in *Input) repair(set string) string {
	command := ""
	for _, d := range in.Fence.Sets {
		if d.Name == set {
			command = cmp.Or(command, d.Repair)
		}
	}
	return cmp.Or(command, in.Tool+" fence install --set "+set)
}

// missing reports policies that a set should have.
func (in *Input) missing() (found []Finding) {
	seen := map[string]bool{}
	for _, d := range in.Fence.Sets {
		if seen[d.Name] {
			continue // it also guards locks in another namespace
		}
		seen[d.Name] = true
		if d.Err != nil {
			found = append(found, Finding{Severity: Warning, Command: d.Repair, Cause: fmt.Sprintf("the fence %s cannot be compared with its declarations: %v", d.Name, d.Err)})
		}
		found = append(found, in.uncoordinated(d)...)
		policies := slices.DeleteFunc(slices.Concat(d.Set.Locks, d.Set.Work), func(p fence.Pair) bool {
			_, hasBinding := in.Fence.Bindings[p.Name()] // a policy without binding is reported elsewhere
			return hasBinding || slices.ContainsFunc(in.Fence.Policies, func(there admissionv1.ValidatingAdmissionPolicy) bool { return there.Name == p.Name() })
		})
		if len(policies) > 0 {
			cause, locks := missingWords(d.Name, policies)
			found = append(found, Finding{Severity: Problem, Elections: in.guarded(locks), Command: d.Repair, Cause: cause})
		}
	}
	return found
}

// uncoordinated reports a fence that rejects the coordinated candidates of an election.
func (in *Input) uncoordinated(d install.Discovered) (found []Finding) {
	for _, e := range in.Elections {
		i := slices.IndexFunc(e.Candidates, func(c inspect.Candidate) bool { return c.Strategy != "" })
		if i < 0 || !slices.ContainsFunc(d.Declarations, func(f fence.Declaration) bool {
			return f.Namespace == e.Namespace && f.Election == e.Name && !f.Coordinated && (f.Mode == "" || f.Mode == fence.Deny)
		}) {
			continue
		}
		f := Finding{Severity: Problem, Advice: "Install the fence with --coordinated (docs/coordination.md).", Cause: fmt.Sprintf(
			"the fence %s rejects the coordinated candidates of %s/%s, for example %s", d.Name, e.Namespace, e.Name, e.Candidates[i].Identity)}
		if strings.HasPrefix(d.Repair, "helm ") {
			f.Advice, f.Command = "", d.Repair+" --set fence.coordinated=true,elections.lock=lease"
		}
		found = append(found, f)
	}
	return found
}

// missingWords describes missing policies of a set.
func missingWords(set string, missing []fence.Pair) (words string, locks []string) {
	for _, p := range missing {
		locks = append(locks, fence.Locks(p.Policy)...)
	}
	locks = sets.List(sets.New(locks...))
	what := "policy " + missing[0].Name() + " and its binding are missing"
	if more := len(missing) - 1; more > 0 {
		what = fmt.Sprintf("%d policies of the fence %s and their bindings are missing, for example %s", len(missing), set, missing[0].Name())
	}
	return what + ": the writes of " + strings.Join(locks, ", ") + " are not guarded", locks
}

// guarded returns the elections of locks, for example "lease istio-system/istio-leader".
func (in *Input) guarded(locks []string) (elections []string) {
	for _, e := range in.Elections {
		if slices.Contains(locks, string(e.Kind())+" "+id(e)) {
			elections = append(elections, id(e))
		}
	}
	return elections
}

// lockless reports a guard whose lock is missing. The API server then rejects all guarded writes.
func (in *Input) lockless(p admissionv1.ValidatingAdmissionPolicy, b admissionv1.ValidatingAdmissionPolicyBinding) []Finding {
	ref := b.Spec.ParamRef
	if p.Spec.ParamKind == nil || ref == nil || ref.Name == "" || ref.ParameterNotFoundAction == nil || *ref.ParameterNotFoundAction != admissionv1.DenyAction {
		return nil
	}
	kind := p.Spec.ParamKind.Kind
	if in.Locks == nil || in.Namespace != "" && in.Namespace != ref.Namespace || slices.ContainsFunc(in.Locks, func(l inspect.Lock) bool { return l.Kind == kind && l.Namespace == ref.Namespace && l.Name == ref.Name }) {
		return nil
	}
	return []Finding{{
		Severity: Problem, Advice: "Start a candidate, which creates the lock, or remove the fence:", Command: in.Tool + " fence remove --set " + p.Labels[fence.SetLabel],
		Cause: fmt.Sprintf("policy %s uses %s %s/%s, which is missing: all guarded writes are rejected, also those of administrators", p.Name, kind, ref.Namespace, ref.Name),
	}}
}

// denying adds mode deny to a command that installs a set.
func denying(command string) string {
	if strings.HasPrefix(command, "helm ") {
		return command + " --set fence.mode=deny"
	}
	return command + " --mode deny"
}

// trap reports a missing permanent policy. Without it, an API server can stop watching a kind of lock when its last binding is deleted.
func (in *Input) trap(permanent map[string]bool) (found []Finding) {
	for _, p := range in.Fence.Policies {
		if p.Labels[fence.SetLabel] == "" || p.Spec.ParamKind == nil || strings.HasPrefix(p.Name, fence.KeepPrefix) {
			continue
		}
		if keeps := fence.KeepPrefix + p.Labels[fence.SetLabel] + "." + strings.ToLower(p.Spec.ParamKind.Kind); !permanent[keeps] {
			permanent[keeps] = true // report once
			found = append(found, Finding{Severity: Problem, Command: in.repair(p.Labels[fence.SetLabel]), Cause: fmt.Sprintf(
				"policy %s or its binding is missing: if the last other binding is deleted, a new one may use outdated locks until the API server restarts", keeps)})
		}
	}
	return found
}
