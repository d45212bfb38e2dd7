package ctl

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pilot/bootstrap"
)

// flow checks the priority of renewals in the API server. With a low priority, a flood of other requests can make leaders lose
// their locks.
func flow(ctx context.Context, x *examination) (findings []finding, _ error) {
	list, err := x.c.kube.FlowcontrolV1().FlowSchemas().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	schemas := list.Items
	slices.SortFunc(schemas, func(a, b flowcontrolv1.FlowSchema) int {
		return cmp.Or(cmp.Compare(a.Spec.MatchingPrecedence, b.Spec.MatchingPrecedence), cmp.Compare(a.Name, b.Name))
	})
	reported := map[string]bool{}
	for _, e := range x.elections {
		if !e.Led() {
			continue
		}
		pod, err := x.pod(ctx, e.Namespace, e.Holder)
		if err != nil {
			return nil, err
		}
		if pod == nil {
			continue
		}
		account := request{namespace: e.Namespace, account: pod.Spec.ServiceAccountName, lease: e.Lock != inspect.ConfigMap}
		if f := account.finding(schemas); !reported[f.Message] {
			reported[f.Message] = true
			findings = append(findings, f)
		}
	}
	return findings, nil
}

// request is a renewal, as a FlowSchema matches it.
type request struct {
	namespace, account string
	lease              bool
}

func (r request) finding(schemas []flowcontrolv1.FlowSchema) finding {
	who := fmt.Sprintf("renewals of service account %s/%s", r.namespace, r.account)
	for _, s := range schemas {
		if !r.matches(s) {
			continue
		}
		level := s.Spec.PriorityLevelConfiguration.Name
		f := finding{Verdict: well, Message: fmt.Sprintf("%s have FlowSchema %s, priority %s", who, s.Name, level)}
		if s.Name == "service-accounts" || level == "workload-low" || level == "global-default" {
			f.Verdict = warning
			f.Fix = "they share a queue with requests of all pods: install a FlowSchema for them, as the chart pilot does"
		}
		return f
	}
	return finding{Verdict: unknown, Message: who + " match no FlowSchema"}
}

func (r request) matches(s flowcontrolv1.FlowSchema) bool {
	return slices.ContainsFunc(s.Spec.Rules, func(rule flowcontrolv1.PolicyRulesWithSubjects) bool {
		return slices.ContainsFunc(rule.Subjects, r.is) && slices.ContainsFunc(rule.ResourceRules, r.writes)
	})
}

func (r request) is(s flowcontrolv1.Subject) bool {
	switch {
	case s.ServiceAccount != nil:
		return s.ServiceAccount.Namespace == r.namespace && (s.ServiceAccount.Name == r.account || s.ServiceAccount.Name == "*")
	case s.User != nil:
		return s.User.Name == "*" || s.User.Name == "system:serviceaccount:"+r.namespace+":"+r.account
	case s.Group != nil:
		return slices.Contains([]string{"*", "system:authenticated", "system:serviceaccounts", "system:serviceaccounts:" + r.namespace}, s.Group.Name)
	}
	return false
}

func (r request) writes(rule flowcontrolv1.ResourcePolicyRule) bool {
	group := ""
	resource := "configmaps"
	if r.lease {
		group = "coordination.k8s.io"
		resource = "leases"
	}
	has := func(all []string, s string) bool { return slices.Contains(all, s) || slices.Contains(all, "*") }
	return has(rule.Verbs, "update") && has(rule.APIGroups, group) && has(rule.Resources, resource) && has(rule.Namespaces, r.namespace)
}

// permanentPrefix is the name prefix of the policies that keep the API server's informers of locks running.
const permanentPrefix = "incumbent-fence-keep."

// fences checks the installed policies. The command fence verify tests their effect.
func fences(ctx context.Context, x *examination) (findings []finding, _ error) {
	policies, err := x.c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=incumbent"})
	if err != nil {
		return nil, err
	}
	bindings, err := x.c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=incumbent"})
	if err != nil {
		return nil, err
	}
	bound := map[string]admissionv1.ValidatingAdmissionPolicyBinding{}
	for _, b := range bindings.Items {
		bound[b.Spec.PolicyName] = b
	}
	all, err := x.c.look(ctx, "")
	if err != nil {
		return nil, err
	}
	findings, repair, err := missing(ctx, x, policies.Items, bound)
	if err != nil {
		return nil, err
	}
	guards := 0
	permanent := map[string]bool{}
	lenient := map[string]int{}
	for _, p := range policies.Items {
		b, ok := bound[p.Name]
		switch {
		case strings.HasPrefix(p.Name, permanentPrefix):
			permanent[p.Spec.ParamKind.Kind] = ok
		case p.Labels[fence.SetLabel] == "":
		case !ok:
			findings = append(findings, finding{Verdict: problem, Message: "policy " + p.Name + " has no binding and no effect", Fix: cmp.Or(repair[p.Labels[fence.SetLabel]], reinstall(p.Labels[fence.SetLabel]))})
		default:
			guards++
			findings = append(findings, lockless(p, b, all)...)
			if !slices.Contains(b.Spec.ValidationActions, admissionv1.Deny) {
				lenient[p.Labels[fence.SetLabel]]++
			}
		}
	}
	findings = append(findings, undenied(lenient, repair)...)
	return append(findings, x.trap(policies.Items, guards, permanent, repair)...), nil
}

// undenied reports sets with policies that do not reject writes, given their number by set.
func undenied(lenient map[string]int, repair map[string]string) (findings []finding) {
	for _, set := range slices.Sorted(maps.Keys(lenient)) {
		findings = append(findings, finding{
			Verdict: warning, Message: fmt.Sprintf("the fence %s has policies without the action Deny (%d): the API server reports writes of non-leaders and admits them", set, lenient[set]),
			Fix: denying(cmp.Or(repair[set], reinstall(set))),
		})
	}
	return findings
}

// missing reports policies that a set should have, and returns the command that repairs each set.
func missing(ctx context.Context, x *examination, policies []admissionv1.ValidatingAdmissionPolicy, bound map[string]admissionv1.ValidatingAdmissionPolicyBinding) (findings []finding, repair map[string]string, _ error) {
	repair = map[string]string{}
	namespaces := map[string]bool{}
	for _, e := range x.elections {
		namespaces[e.Namespace] = true
	}
	for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
		sets, err := install.Config{Namespace: namespace, Elections: bootstrap.FencedElections(bootstrap.Config{})}.Discover(ctx, x.c.kube)
		if err != nil {
			return nil, nil, err
		}
		for _, d := range sets {
			repair[d.Config.Set] = d.Repair
			policies := slices.DeleteFunc(append(d.Set.Locks, d.Set.Work...), func(p fence.Pair) bool {
				_, hasBinding := bound[p.Name()] // a policy without binding is reported elsewhere
				return hasBinding || slices.ContainsFunc(policies, func(there admissionv1.ValidatingAdmissionPolicy) bool { return there.Name == p.Name() })
			})
			if len(policies) > 0 {
				findings = append(findings, finding{Verdict: problem, Message: missingWords(d.Config.Set, policies), Fix: d.Repair})
			}
		}
	}
	return findings, repair, nil
}

// missingWords describes missing policies of a set.
func missingWords(set string, missing []fence.Pair) string {
	var locks []string
	for _, p := range missing {
		locks = append(locks, p.Policy.Annotations[fence.LocksAnnotation])
	}
	slices.Sort(locks)
	what := "policy " + missing[0].Name() + " and its binding are missing"
	if more := len(missing) - 1; more > 0 {
		what = fmt.Sprintf("%d policies of the fence %s and their bindings are missing, for example %s", len(missing), set, missing[0].Name())
	}
	return what + ": the writes of " + strings.Join(slices.Compact(locks), ", ") + " are not guarded"
}

// lockless reports a guard whose lock is missing. The API server then rejects all guarded writes.
func lockless(p admissionv1.ValidatingAdmissionPolicy, b admissionv1.ValidatingAdmissionPolicyBinding, all *seen) []finding {
	ref := b.Spec.ParamRef
	if p.Spec.ParamKind == nil || ref == nil || ref.Name == "" || ref.ParameterNotFoundAction == nil || *ref.ParameterNotFoundAction != admissionv1.DenyAction {
		return nil
	}
	for _, l := range all.locks {
		if l.Kind == p.Spec.ParamKind.Kind && l.Namespace == ref.Namespace && l.Name == ref.Name {
			return nil
		}
	}
	return []finding{{
		Verdict: problem, Message: fmt.Sprintf("policy %s uses %s %s/%s, which is missing: all guarded writes are rejected, also those of administrators", p.Name, p.Spec.ParamKind.Kind, ref.Namespace, ref.Name),
		Fix: "start a candidate, which creates the lock; or " + name() + " fence remove --set " + p.Labels[fence.SetLabel],
	}}
}

// denying adds mode deny to a command that installs a set.
func denying(command string) string {
	if strings.HasPrefix(command, "helm ") {
		return command + " --set fence.mode=deny"
	}
	return command + " --mode deny"
}

// reinstall returns the command for a set that Discover did not find.
func reinstall(set string) string { return name() + " fence install --set " + set }

// trap reports a missing permanent policy. Without it, an API server can stop watching a kind of lock when its last binding is deleted.
func (x *examination) trap(policies []admissionv1.ValidatingAdmissionPolicy, guards int, permanent map[string]bool, repair map[string]string) (findings []finding) {
	for _, p := range policies {
		if p.Labels[fence.SetLabel] == "" || p.Spec.ParamKind == nil || strings.HasPrefix(p.Name, permanentPrefix) {
			continue
		}
		if kind := p.Spec.ParamKind.Kind; !permanent[kind] {
			permanent[kind] = true // report once
			findings = append(findings, finding{
				Verdict: problem, Message: "policy " + permanentPrefix + strings.ToLower(kind) + " or its binding is missing: if the last other binding is deleted, a new one may use outdated locks until the API server restarts",
				Fix: cmp.Or(repair[p.Labels[fence.SetLabel]], reinstall(p.Labels[fence.SetLabel])),
			})
		}
	}
	if guards == 0 {
		return append(findings, finding{Verdict: unknown, Message: "no fence installed: only the client rejects writes of a process that does not lead", Fix: "install the chart with fence.mode=deny, or run " + name() + " fence install (docs/fence.md)"})
	}
	return append(findings, finding{Verdict: well, Message: fmt.Sprintf("%d fence policies have bindings; to test them: %s fence verify%s", guards, name(), x.in())})
}
