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
)

// flow checks the priority of renewals in the API server. With a low priority, a flood of other requests can make leaders lose
// their locks.
func flow(ctx context.Context, x *examination) error {
	list, err := x.c.kube.FlowcontrolV1().FlowSchemas().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	schemas := list.Items
	slices.SortFunc(schemas, func(a, b flowcontrolv1.FlowSchema) int {
		return cmp.Or(cmp.Compare(a.Spec.MatchingPrecedence, b.Spec.MatchingPrecedence), cmp.Compare(a.Name, b.Name))
	})
	for _, e := range x.elections {
		if !e.Led() {
			continue
		}
		pod, err := x.c.existing(ctx, e.Namespace, e.Holder)
		if err != nil {
			return err
		}
		if pod == nil {
			continue
		}
		account := request{namespace: e.Namespace, account: pod.Spec.ServiceAccountName, lease: e.Lock != inspect.ConfigMap}
		if f := account.finding(schemas); !slices.Contains(x.found, f) {
			x.found = append(x.found, f)
		}
	}
	return nil
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

// policies returns the policies of incumbent, and their bindings by policy name.
func (x *examination) policies(ctx context.Context) ([]admissionv1.ValidatingAdmissionPolicy, map[string]admissionv1.ValidatingAdmissionPolicyBinding, error) {
	own := metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=incumbent"}
	policies, err := x.c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(ctx, own)
	if err != nil {
		return nil, nil, err
	}
	bindings, err := x.c.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().List(ctx, own)
	if err != nil {
		return nil, nil, err
	}
	bound := map[string]admissionv1.ValidatingAdmissionPolicyBinding{}
	for _, b := range bindings.Items {
		bound[b.Spec.PolicyName] = b
	}
	return policies.Items, bound, nil
}

// fences checks the installed policies. The command fence verify tests their effect.
func fences(ctx context.Context, x *examination) error {
	policies, bound, err := x.policies(ctx)
	if err != nil {
		return err
	}
	all, err := x.c.look(ctx, "")
	if err != nil {
		return err
	}
	repair, err := x.missing(ctx, policies, bound)
	if err != nil {
		return err
	}
	guards := 0
	permanent := map[string]bool{}
	lenient := map[string]int{}
	for _, p := range policies {
		b, ok := bound[p.Name]
		switch {
		case strings.HasPrefix(p.Name, fence.KeepPrefix):
			permanent[p.Spec.ParamKind.Kind] = ok
		case p.Labels[fence.SetLabel] == "":
		case !ok:
			x.add(problem, repair.of(p.Labels[fence.SetLabel]), "policy %s has no binding and no effect", p.Name)
		default:
			if x.concerns(p) {
				guards++
			}
			x.lockless(p, b, all)
			if !slices.Contains(b.Spec.ValidationActions, admissionv1.Deny) {
				lenient[p.Labels[fence.SetLabel]]++
			}
		}
	}
	for _, set := range slices.Sorted(maps.Keys(lenient)) {
		x.add(warning, denying(repair.of(set)),
			"the fence %s has policies without the action Deny (%d): the API server reports writes of non-leaders and admits them", set, lenient[set])
	}
	x.trap(policies, permanent, repair)
	x.guarded(guards)
	return nil
}

// guarded adds a finding about the number of policies that have a binding.
func (x *examination) guarded(guards int) {
	if guards == 0 {
		x.add(unknown, "install the chart with fence.mode=deny, or run "+name()+" fence install (docs/fence.md)",
			"no fence installed%s: only the client rejects writes of a process that does not lead", optional(" for namespace %s", x.c.at))
		return
	}
	x.add(well, "", "%d fence policies have bindings; to test them: %s fence verify%s", guards, name(), x.in())
}

// concerns reports whether the policy guards a lock of the selected namespaces. Other installations have their own fences.
func (x *examination) concerns(p admissionv1.ValidatingAdmissionPolicy) bool {
	return slices.ContainsFunc(fence.Locks(&p), func(lock string) bool {
		_, lock, _ = strings.Cut(lock, " ")
		namespace, _, _ := strings.Cut(lock, "/")
		return slices.Contains(x.namespaces(), namespace)
	})
}

// repairs are the commands that repair the sets that Discover has found.
type repairs map[string]string

// of returns the command for a set.
func (r repairs) of(set string) string {
	return cmp.Or(r[set], name()+" fence install --set "+set)
}

// missing reports policies that a set should have.
func (x *examination) missing(ctx context.Context, policies []admissionv1.ValidatingAdmissionPolicy, bound map[string]admissionv1.ValidatingAdmissionPolicyBinding) (repairs, error) {
	repair := repairs{}
	for _, namespace := range x.namespaces() {
		sets, err := install.Config{Namespace: namespace}.Discover(ctx, x.c.kube)
		if err != nil {
			return nil, err
		}
		for _, d := range sets {
			if repair[d.Name] != "" {
				continue // it also guards locks in another namespace
			}
			repair[d.Name] = d.Repair
			if d.Err != nil {
				x.add(warning, d.Repair, "the fence %s cannot be compared with its declarations: %v", d.Name, d.Err)
			}
			policies := slices.DeleteFunc(append(d.Set.Locks, d.Set.Work...), func(p fence.Pair) bool {
				_, hasBinding := bound[p.Name()] // a policy without binding is reported elsewhere
				return hasBinding || slices.ContainsFunc(policies, func(there admissionv1.ValidatingAdmissionPolicy) bool { return there.Name == p.Name() })
			})
			if len(policies) > 0 {
				x.add(problem, d.Repair, "%s", missingWords(d.Name, policies))
			}
		}
	}
	return repair, nil
}

// missingWords describes missing policies of a set.
func missingWords(set string, missing []fence.Pair) string {
	var locks []string
	for _, p := range missing {
		locks = append(locks, fence.Locks(p.Policy)...)
	}
	slices.Sort(locks)
	what := "policy " + missing[0].Name() + " and its binding are missing"
	if more := len(missing) - 1; more > 0 {
		what = fmt.Sprintf("%d policies of the fence %s and their bindings are missing, for example %s", len(missing), set, missing[0].Name())
	}
	return what + ": the writes of " + strings.Join(slices.Compact(locks), ", ") + " are not guarded"
}

// lockless reports a guard whose lock is missing. The API server then rejects all guarded writes.
func (x *examination) lockless(p admissionv1.ValidatingAdmissionPolicy, b admissionv1.ValidatingAdmissionPolicyBinding, all *seen) {
	ref := b.Spec.ParamRef
	if p.Spec.ParamKind == nil || ref == nil || ref.Name == "" || ref.ParameterNotFoundAction == nil || *ref.ParameterNotFoundAction != admissionv1.DenyAction {
		return
	}
	kind := p.Spec.ParamKind.Kind
	if !slices.ContainsFunc(all.locks, func(l inspect.Lock) bool { return l.Kind == kind && l.Namespace == ref.Namespace && l.Name == ref.Name }) {
		x.add(problem, "start a candidate, which creates the lock; or "+name()+" fence remove --set "+p.Labels[fence.SetLabel],
			"policy %s uses %s %s/%s, which is missing: all guarded writes are rejected, also those of administrators", p.Name, kind, ref.Namespace, ref.Name)
	}
}

// denying adds mode deny to a command that installs a set.
func denying(command string) string {
	if strings.HasPrefix(command, "helm ") {
		return command + " --set fence.mode=deny"
	}
	return command + " --mode deny"
}

// trap reports a missing permanent policy. Without it, an API server can stop watching a kind of lock when its last binding is deleted.
func (x *examination) trap(policies []admissionv1.ValidatingAdmissionPolicy, permanent map[string]bool, repair repairs) {
	for _, p := range policies {
		if p.Labels[fence.SetLabel] == "" || p.Spec.ParamKind == nil || strings.HasPrefix(p.Name, fence.KeepPrefix) {
			continue
		}
		if kind := p.Spec.ParamKind.Kind; !permanent[kind] {
			permanent[kind] = true // report once
			x.add(problem, repair.of(p.Labels[fence.SetLabel]),
				"policy %s or its binding is missing: if the last other binding is deleted, a new one may use outdated locks until the API server restarts", fence.KeepPrefix+strings.ToLower(kind))
		}
	}
}
