package install

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"incumbent.dev/incumbent/internal/fence"
)

// asked is a write that an API server judges.
type asked struct {
	user, pod                              string
	op, group, resource, namespace, name   string
	object                                 string // the name of the object, also for a deletion of a collection
	labels                                 map[string]string
	election                               string // whose guards it is meant to meet
	steals, renews, everyone, clusterScope bool
	place                                  int // in the universe, from 1 on
}

// server is one API server. It receives policies, bindings and locks, each kind in
// order and independent of the others. Sometimes it loads them; then they are in effect.
type server struct {
	w               *world
	toldOf, boundTo int // events taken in
	policies        map[string]*admissionv1.ValidatingAdmissionPolicy
	bindings        map[string]*admissionv1.ValidatingAdmissionPolicyBinding
	inUse           []hook
	locks           map[fence.LockKind]*informer
	stalled         bool
}

// hook is a binding in use with its policy.
type hook struct {
	policy  *admissionv1.ValidatingAdmissionPolicy
	binding *admissionv1.ValidatingAdmissionPolicyBinding
	denies  bool
	kind    fence.LockKind // of its param; "" without
}

// informer follows the locks of a kind. It starts with the first binding in use that has such a
// param, and when there is none any more it stops for good.
type informer struct {
	running, dead, synced bool
	at                    int
	holders               map[string]string
}

// restart: an API server that comes up has all that there is.
func (s *server) restart() {
	s.toldOf, s.boundTo = 0, 0
	s.policies = map[string]*admissionv1.ValidatingAdmissionPolicy{}
	s.bindings = map[string]*admissionv1.ValidatingAdmissionPolicyBinding{}
	s.locks = map[fence.LockKind]*informer{fence.ConfigMap: {}, fence.Lease: {}}
	for s.tellOfPolicy() {
	}
	for s.tellOfBinding() {
	}
	s.refresh()
	for kind := range s.locks {
		s.follow(kind)
	}
}

func (s *server) tellOfPolicy() bool  { return tell(s.w.policies.events, &s.toldOf, s.policies) }
func (s *server) tellOfBinding() bool { return tell(s.w.bindings.events, &s.boundTo, s.bindings) }

// tell passes the next event on, if there is one.
func tell[T metav1.Object](events []event[T], told *int, into map[string]T) bool {
	if *told == len(events) {
		return false
	}
	e := events[*told]
	*told++
	if e.gone {
		delete(into, e.object.GetName())
	} else {
		into[e.object.GetName()] = e.object
	}
	return true
}

// refresh loads the received policies and bindings together.
func (s *server) refresh() {
	s.inUse = s.inUse[:0:0]
	params := map[fence.LockKind]bool{}
	for _, b := range s.bindings {
		policy := s.policies[b.Spec.PolicyName]
		if policy == nil {
			continue
		}
		h := hook{policy: policy, binding: b, denies: slices.Contains(b.Spec.ValidationActions, admissionv1.Deny)}
		if k := policy.Spec.ParamKind; k != nil {
			h.kind = map[string]fence.LockKind{"ConfigMap": fence.ConfigMap, "Lease": fence.Lease}[k.Kind]
			params[h.kind] = true
		}
		s.inUse = append(s.inUse, h)
	}
	for kind, i := range s.locks {
		switch {
		case params[kind]:
			i.running = true
		case i.running:
			i.dead = true
		}
	}
}

// follow takes in one change of a lock, or, at first, all that there are.
func (s *server) follow(kind fence.LockKind) {
	i := s.locks[kind]
	switch {
	case !i.running || i.dead:
	case !i.synced:
		i.synced, i.at, i.holders = true, len(s.w.locks), map[string]string{}
		for _, change := range s.w.locks {
			i.holders[change.election] = change.holder
		}
	case i.at < len(s.w.locks):
		i.holders[s.w.locks[i.at].election] = s.w.locks[i.at].holder
		i.at++
	}
}

// settled is the holder of an election if it is the same in all that this server may have
// received of its locks so far.
func (s *server) settled(election string) string {
	newest := s.w.holder(election)
	for _, i := range s.locks {
		if i.dead || !i.synced {
			continue // the first has no excuse, the second keeps a write waiting
		}
		for _, change := range append([]lockChange{{election, i.holders[election]}}, s.w.locks[i.at:]...) {
			if change.election == election && change.holder != newest {
				return ""
			}
		}
	}
	return newest
}

// verdict is the outcome of a write.
type verdict struct {
	by    string // the policy that refuses it
	waits bool   // until a param's informer has its first list
}

func (s *server) verdict(w asked) verdict {
	var waits bool
	for _, h := range s.inUse {
		if !s.w.matches(h, w) || h.kind != "" && h.binding.Spec.ParamRef == nil {
			continue // the latter is half an update in place
		}
		holder, there := "", true
		if h.kind != "" {
			i := s.locks[h.kind]
			if !i.synced {
				waits = true
				continue
			}
			holder, there = i.holders[h.binding.Spec.ParamRef.Name]
		}
		if h.denies && (!there && *h.binding.Spec.ParamRef.ParameterNotFoundAction == admissionv1.DenyAction || h.refuses(w, holder)) {
			return verdict{by: h.policy.Name}
		}
	}
	return verdict{waits: waits}
}

// refuses evaluates the expressions of a policy. An unknown expression is a defect of the model, not of the policy.
func (h hook) refuses(w asked, holder string) bool {
	for _, c := range h.policy.Spec.MatchConditions {
		met := false
		switch c.Name {
		case "candidate":
			met = strings.Contains(c.Expression, "'"+w.user+"'")
		case "follower":
			met = w.pod == "" || w.pod != holder
		case "change":
			met = !w.renews
		case "collection":
			met = w.name == ""
		case "guarded", "lock":
			met = strings.Contains(c.Expression, "'"+w.object+"'")
		default:
			panic("the model has no condition " + c.Name)
		}
		if !met {
			return false
		}
	}
	if strings.Contains(h.policy.Name, ".lock-") {
		return w.steals
	}
	switch e := h.policy.Spec.Validations[0].Expression; {
	case e == "false":
		return true
	case e == "variables.operator":
		return w.user != admin
	case e == "true":
		return false
	default:
		panic(fmt.Sprintf("the model has no expression %q", e))
	}
}

// about is a policy with a binding.
type about struct {
	policy  *admissionv1.ValidatingAdmissionPolicy
	binding *admissionv1.ValidatingAdmissionPolicyBinding
}

// matches remembers which writes of the universe a policy with its binding is about.
func (w *world) matches(h hook, a asked) bool {
	matched := func(a asked) bool {
		within := h.binding.Spec.MatchResources
		return matches(h.policy.Spec.MatchConstraints, a) && (within == nil || matches(within, a))
	}
	if a.place == 0 {
		return matched(a)
	}
	key := about{h.policy, h.binding}
	known := w.about[key]
	if known == nil {
		for _, a := range universe {
			known = append(known, matched(a))
		}
		w.about[key] = known
	}
	return known[a.place-1]
}

func matches(m *admissionv1.MatchResources, w asked) bool {
	met := func(rules []admissionv1.NamedRuleWithOperations) bool {
		return slices.ContainsFunc(rules, func(r admissionv1.NamedRuleWithOperations) bool { return meets(r, w) })
	}
	if len(m.ResourceRules) > 0 && !met(m.ResourceRules) || met(m.ExcludeResourceRules) {
		return false
	}
	space, err := metav1.LabelSelectorAsSelector(m.NamespaceSelector)
	if err != nil {
		panic(err)
	}
	object, err := metav1.LabelSelectorAsSelector(m.ObjectSelector)
	if err != nil {
		panic(err)
	}
	inSpace := w.clusterScope || space.Matches(labels.Set{"kubernetes.io/metadata.name": w.namespace})
	return inSpace && object.Matches(labels.Set(w.labels))
}

func meets(r admissionv1.NamedRuleWithOperations, w asked) bool {
	op := admissionv1.OperationType(w.op)
	if !slices.Contains(r.Operations, op) && !slices.Contains(r.Operations, admissionv1.OperationAll) {
		return false
	}
	if *r.Scope == admissionv1.NamespacedScope && w.clusterScope || *r.Scope == admissionv1.ClusterScope && !w.clusterScope {
		return false
	}
	return slices.Contains(r.APIGroups, w.group) && slices.Contains(r.Resources, w.resource) &&
		(len(r.ResourceNames) == 0 || w.name != "" && slices.Contains(r.ResourceNames, w.name))
}
