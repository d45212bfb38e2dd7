package diagnosis

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/members"
)

// Webhook is a webhook of the API server.
type Webhook struct {
	// Kind and Configuration are the object. Index is the position of the webhook in it.
	Kind, Configuration string
	Index               int
	// ValidatingWebhook has the fields that both kinds have.
	admissionv1.ValidatingWebhook
}

// blocks reports whether the webhook must admit each write of member Leases in a namespace.
func (w Webhook) blocks(namespace corev1.Namespace) bool {
	selector, err := metav1.LabelSelectorAsSelector(cmp.Or(w.NamespaceSelector, &metav1.LabelSelector{}))
	has := func(all []string, s string) bool { return slices.Contains(all, s) || slices.Contains(all, "*") }
	return err == nil && w.FailurePolicy != nil && *w.FailurePolicy == admissionv1.Fail && len(w.MatchConditions) == 0 && selector.Matches(labels.Set(namespace.Labels)) && slices.ContainsFunc(w.Rules, func(r admissionv1.RuleWithOperations) bool {
		return has(r.APIGroups, "coordination.k8s.io") && has(r.Resources, "leases") && (slices.Contains(r.Operations, admissionv1.Update) || slices.Contains(r.Operations, admissionv1.OperationAll))
	})
}

// blocking returns the webhook that can prevent candidates from publishing why they do not lead: no candidate renews its member Lease,
// although its pod runs.
func (in *Input) blocking(e inspect.Election) Finding {
	if len(e.Candidates) == 0 || slices.ContainsFunc(e.Candidates, func(c inspect.Candidate) bool { return !c.Late || c.Down != "" }) {
		return Finding{}
	}
	for _, w := range in.Webhooks {
		for _, s := range in.Spaces {
			if s.Name == e.Namespace && w.blocks(s) {
				return Finding{
					Cause:   fmt.Sprintf("no candidate can renew its member Lease, and webhook %s of %s %s must admit each write of leases", w.Name, w.Kind, w.Configuration),
					Advice:  "Exclude the locks and the member Leases from the webhook.",
					Command: in.exclude(w, e.Namespace, func(inspect.Election) bool { return true }),
				}
			}
		}
	}
	return Finding{}
}

// Right is the right of a service account (namespace/name) to update a lock (namespace/name).
type Right struct{ Account, Lock string }

// Texts of the API server about a rejected write. The words are parts of commands, and a stranger can write the text.
var (
	byWebhook = regexp.MustCompile(`webhook "([^"]+)"`)
	byPolicy  = regexp.MustCompile(`ValidatingAdmissionPolicy '([^']+)'`)
	byRights  = regexp.MustCompile(`User "([\w:@./-]+)" cannot (\w+) resource "(\w+)"`)
)

// ByWebhook reports whether a webhook rejected a candidate.
func ByWebhook(c inspect.Candidate) bool { return byWebhook.MatchString(c.Refused) }

func byLoad(c inspect.Candidate) bool {
	return strings.Contains(strings.ToLower(c.Refused), "too many requests")
}

// past reports whether the cause of a refusal is gone. A follower keeps the reason until it writes again.
func (in *Input) past(e inspect.Election, c inspect.Candidate) bool {
	rights := byRights.FindStringSubmatch(c.Refused)
	policy := byPolicy.FindStringSubmatch(c.Refused)
	switch {
	case policy != nil && in.Fence != nil:
		return !slices.ContainsFunc(in.Fence.Policies, func(p admissionv1.ValidatingAdmissionPolicy) bool { return p.Name == policy[1] })
	case ByWebhook(c) && in.Webhooks != nil:
		i := slices.IndexFunc(in.Webhooks, func(w Webhook) bool { return w.Name == byWebhook.FindStringSubmatch(c.Refused)[1] })
		return i < 0 || slices.ContainsFunc(in.Webhooks[i].MatchConditions, func(m admissionv1.MatchCondition) bool {
			return m.Name == notElectionLocks && strings.Contains(m.Expression, fmt.Sprintf("%q", e.Name))
		})
	case rights != nil && rights[2] == "update":
		namespace, name, _ := account(rights[1])
		return slices.Contains(in.Granted, Right{Account: namespace + "/" + name, Lock: id(e)})
	}
	return byLoad(c) && e.Led() && c.Identity != e.Holder
}

// rejection returns why the API server rejects a candidate as holder.
func (in *Input) rejection(e inspect.Election, candidates []inspect.Candidate) Finding {
	i := slices.IndexFunc(candidates, func(c inspect.Candidate) bool { return c.Readiness() == inspect.Refused })
	if i < 0 {
		return Finding{}
	}
	c := candidates[i]
	f := Finding{
		Cause: "the API server rejects " + c.Identity + " as holder: " + c.Refused, Advice: "Only a change of what rejects it can fix this. Its log has each rejection.",
		Command: logs(e, c.Identity),
	}
	rights := byRights.FindStringSubmatch(c.Refused)
	switch {
	case ByWebhook(c):
		f = in.webhook(e, c)
	case strings.Contains(c.Refused, "ValidatingAdmissionPolicy"):
		f.Advice, f.Command = "Only the declarations of the fence can fix this. They must name the service account.", in.Tool+" fence verify -n "+e.Namespace
		if excluded := in.excluded(e); excluded.Cause != "" {
			f = excluded
		}
	case byLoad(c):
		f = in.tooMany(e, c)
	case rights != nil:
		f = in.rights(e, rights[1], rights[2], rights[3])
	}
	f.Rejected = true
	return f
}

// rights returns that a user lacks a permission for the locks.
func (in *Input) rights(e inspect.Election, user, verb, resource string) Finding {
	f := Finding{Cause: fmt.Sprintf("user %s has no permission to %s %s in namespace %s", user, verb, resource, e.Namespace)}
	role, subject := strings.ReplaceAll(user, ":", "-")+"-locks", "--user="+inspect.Quoted(user)
	if namespace, account, ok := account(user); ok {
		f.Cause = fmt.Sprintf("service account %s/%s has no permission to %s %s in namespace %s", namespace, account, verb, resource, e.Namespace)
		role, subject = account+"-locks", "--serviceaccount="+namespace+":"+account
		if release := in.Releases[namespace+"/"+account]; release != "" {
			f.Advice, f.Command = "Restore the Role and the RoleBinding of the release.", release
			return f
		}
	}
	if e.Lock == inspect.Lease {
		resource = "leases.coordination.k8s.io"
	}
	at := "kubectl -n " + e.Namespace
	f.Advice = "Give it a Role."
	f.Command = fmt.Sprintf("%s create role %s --verb=get,list,watch,create,update --resource=%s --dry-run=client -o yaml | %[1]s apply -f - && "+
		"%[1]s create rolebinding %[2]s --role=%[2]s %[4]s --dry-run=client -o yaml | %[1]s apply -f -", at, role, resource, subject)
	return f
}

// Doubtful returns the service accounts (namespace/name) whose rights on the locks of an election can be the reason why it has no leader
// or rejected candidates. A process without them may be unable to publish the reason.
func (in *Input) Doubtful(e inspect.Election) (accounts []string) {
	refused := slices.ContainsFunc(e.Candidates, func(c inspect.Candidate) bool { return byRights.MatchString(c.Refused) })
	if e.Led() && !refused || !Ours(e) {
		return nil
	}
	return accountsOf(in.pilots(e.Namespace, ownRevision(e)))
}

// Accounts returns the service accounts (namespace/name) of the control plane.
func (in *Input) Accounts() []string {
	var pods []*corev1.Pod
	for namespace := range in.Pods {
		pods = append(pods, in.pilots(namespace, "")...)
	}
	return accountsOf(pods)
}

// accountsOf returns the service accounts (namespace/name) of pods.
func accountsOf(pods []*corev1.Pod) []string {
	accounts := sets.New[string]()
	for _, p := range pods {
		accounts.Insert(p.Namespace + "/" + accountOf(p))
	}
	return sets.List(accounts)
}

// lacking returns that a service account of the control plane has no right to update the lock.
func (in *Input) lacking(e inspect.Election) Finding {
	for _, lack := range in.Lacking {
		if lack.Lock == id(e) {
			user, _ := fence.UserOf(lack.Account)
			_, resource := e.Kind().Resource()
			return in.rights(e, user, "update", resource)
		}
	}
	return Finding{}
}

// slowAnswer is the time of an answer that endangers leaders. They need answers within half of RenewDeadline, by default 7.5 s.
const slowAnswer = 5 * time.Second

// slow returns that the API server answers slowly.
func (in *Input) slow() Finding {
	if in.Clock == nil || 2*in.Clock.PossibleError < slowAnswer {
		return Finding{}
	}
	return Finding{
		Cause:  fmt.Sprintf("the API server needs %v for an answer, and leaders need answers within half of RenewDeadline", (2 * in.Clock.PossibleError).Round(100*time.Millisecond)),
		Advice: "Only a faster API server can fix this.", Command: ready,
	}
}

// starved returns the FlowSchema that rejects the renewals of the control plane.
func (in *Input) starved(e inspect.Election) Finding {
	for _, p := range in.pilots(e.Namespace, ownRevision(e)) {
		if f := renewalOf(e, p).finding(in.Schemas, in.Levels); f.Severity == Problem && !e.Led() {
			return f
		}
	}
	return Finding{}
}

// account returns the namespace and the name of the service account that is a user.
func account(user string) (namespace, name string, ok bool) {
	if user, ok = strings.CutPrefix(user, "system:serviceaccount:"); ok {
		namespace, name, ok = strings.Cut(user, ":")
	}
	return namespace, name, ok
}

// webhook returns which webhook rejects the holder, and the command that excludes the locks from it.
func (in *Input) webhook(e inspect.Election, c inspect.Candidate) Finding {
	name := byWebhook.FindStringSubmatch(c.Refused)[1]
	_, reason, _ := strings.Cut(c.Refused, `webhook "`+name+`"`)
	f := Finding{
		Cause: fmt.Sprintf("webhook %s rejects the holder of the lock: %s", name, strings.TrimLeft(reason, ": ")), Advice: "Only its configuration has the writes that it must admit. Exclude the lock.",
		Command: "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations -o name",
	}
	i := slices.IndexFunc(in.Webhooks, func(w Webhook) bool { return w.Name == name })
	if i < 0 {
		return f
	}
	w := in.Webhooks[i]
	f.Cause = fmt.Sprintf("webhook %s of %s %s rejects the holder of the lock: %s", name, w.Kind, w.Configuration, strings.TrimLeft(reason, ": "))
	f.Advice = "Exclude the lock from the webhook."
	f.Command = in.exclude(w, e.Namespace, func(other inspect.Election) bool {
		return slices.ContainsFunc(other.Candidates, func(c inspect.Candidate) bool { return strings.Contains(c.Refused, `webhook "`+name+`"`) })
	})
	return f
}

// exclude returns the command that excludes the locks of selected elections, and the member Leases, from a webhook.
func (in *Input) exclude(w Webhook, namespace string, selected func(inspect.Election) bool) string {
	var locks []string
	for _, e := range in.Elections {
		if e.Namespace == namespace && selected(e) {
			locks = append(locks, fmt.Sprintf("%q", e.Name))
		}
	}
	slices.Sort(locks)
	return fmt.Sprintf("kubectl patch %s %s --type=json -p %s", strings.ToLower(w.Kind), w.Configuration, inspect.Quoted(w.exclude(fmt.Sprintf(
		"!(request.namespace == %q && (request.name in [%s] || request.name.startsWith(%q)))", namespace, strings.Join(slices.Compact(locks), ", "), members.NamePrefix))))
}

// notElectionLocks is the name of a match condition that excludes locks from a webhook.
const notElectionLocks = "not-election-locks"

// exclude returns a JSON patch that adds a match condition to the webhook.
func (w Webhook) exclude(expression string) string {
	condition := map[string]string{"name": notElectionLocks, "expression": expression}
	op := map[string]any{"op": "add", "path": fmt.Sprintf("/webhooks/%d/matchConditions", w.Index), "value": []any{condition}}
	if i := slices.IndexFunc(w.MatchConditions, func(m admissionv1.MatchCondition) bool { return m.Name == notElectionLocks }); i >= 0 {
		op = map[string]any{"op": "replace", "path": fmt.Sprintf("%s/%d", op["path"], i), "value": condition}
	} else if len(w.MatchConditions) > 0 {
		op["path"] = fmt.Sprintf("%s/-", op["path"])
		op["value"] = condition
	}
	return oneLine([]any{op})
}

// oneLine encodes a value as JSON. Its types cannot fail.
func oneLine(value any) string {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value)
	return strings.TrimSpace(b.String())
}

// tooMany returns which FlowSchema rejects the requests of a candidate.
func (in *Input) tooMany(e inspect.Election, c inspect.Candidate) Finding {
	f := Finding{Cause: "the API server answers 429 (too many requests) to " + c.Identity, Advice: "Only fewer requests of other clients, or a larger API server, can fix this. The users of the waiting requests:", Command: "kubectl get --raw '/debug/api_priority_and_fairness/dump_requests?includeRequestDetails=1'"}
	pod := in.pod(c.Namespace, c.Identity)
	if pod == nil {
		return f
	}
	r := renewalOf(e, pod)
	f.Cause = fmt.Sprintf("the API server answers 429 (too many requests) to service account %s/%s", r.from, r.account)
	flow := r.finding(in.Schemas, in.Levels)
	f.Cause += ": " + flow.Cause
	if flow.Command != "" {
		f.Advice, f.Command = flow.Advice, flow.Command
	}
	return f
}

// prioritize returns a command that gives the renewals the priority of leader elections, before the FlowSchema that they have.
func (r renewal) prioritize(before flowcontrolv1.FlowSchema) string {
	rule := map[string]any{
		"subjects":      []any{map[string]any{"kind": "ServiceAccount", "serviceAccount": map[string]string{"namespace": r.from, "name": r.account}}},
		"resourceRules": []any{map[string]any{"verbs": []string{"*"}, "apiGroups": []string{"", "coordination.k8s.io"}, "resources": []string{"configmaps", "leases"}, "namespaces": []string{r.namespace}}},
	}
	object := map[string]any{
		"apiVersion": flowcontrolv1.SchemeGroupVersion.String(), "kind": "FlowSchema", "metadata": map[string]string{"name": "renewals-" + r.from + "-" + r.account},
		"spec": map[string]any{
			"priorityLevelConfiguration": map[string]string{"name": leaderElection}, "matchingPrecedence": max(2, cmp.Or(before.Spec.MatchingPrecedence, 1000)-1), "rules": []any{rule},
		},
	}
	return "echo " + inspect.Quoted(oneLine(object)) + " | kubectl apply -f -"
}

// leaderElection is the priority level of the API server for leader elections.
const leaderElection = "leader-election"
