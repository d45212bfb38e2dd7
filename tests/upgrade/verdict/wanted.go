package verdict

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Wanted says what objects should be like. Each part may be empty, and then asks nothing.
type Wanted struct {
	// Bundle is the key of ConfigMap BundleName that every namespace but Excluded should have, BundleKey its name in it.
	BundleName, BundleKey, Bundle string
	Excluded                      []string
	// IngressAddress is the address that every Ingress should have.
	IngressAddress string
	// Gateways: each should be programmed with an address, and deployed by the default revision, routes be accepted.
	Gateways bool
}

// Span is a time in which an object was not as wanted.
type Span struct {
	Kind, Namespace, Name string
	// Since is the write after which it was not.
	Since Write
	// Why says what was not as wanted at first, Step during which of the upgrade's steps it began.
	Why, Step string
	Length    time.Duration
	// gone: it ended because the object went.
	gone bool
}

// Cause is what a span began with, in a few words that many spans share.
func (s Span) Cause() string {
	switch s.Since.Kind() {
	case "mutatingwebhookconfigurations":
		return "the default changed"
	case "deployments":
		return "its pods changed"
	case "services":
		return "its address changed"
	}
	switch {
	case s.Since.Deleted:
		return "deleted"
	case s.Since.Verb == "create":
		return "created"
	}
	return "edited"
}

// state is what there is at one version.
type state struct {
	wanted *Wanted
	// objects are by kind, namespace and name.
	objects         map[string]map[string]any
	defaultRevision string
}

func key(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }

const (
	kindBundle     = "bundle"
	kindIngress    = "ingress"
	kindGateway    = "gateway"
	kindDeployment = "gateway's deployment"
	kindRoute      = "route"
)

// thing is what one question is about.
type thing struct{ kind, namespace, name string }

// take puts a write into the state, and lists what has to be asked about again.
func (s *state) take(w Write) (again []thing) {
	id := key(w.Kind(), w.Namespace, w.Name)
	switch {
	case w.Deleted && w.Kind() == "namespaces":
		// What is in it goes without a word: namespaces that the log does not know are taken for living ones.
		s.objects[id] = map[string]any{"metadata": map[string]any{"deletionTimestamp": "gone"}}
	case w.Deleted:
		delete(s.objects, id)
	default:
		s.objects[id] = w.Object
	}
	switch w.Kind() {
	case "namespaces":
		again = append(again, thing{kindBundle, w.Name, w.Name})
		// All in it goes with it.
		for id := range s.objects {
			kind, path, _ := strings.Cut(id, " ")
			if namespace, name, _ := strings.Cut(path, "/"); namespace == w.Name {
				again = append(again, thingsOf(kind, namespace, name)...)
			}
		}
	case "configmaps":
		if w.Name == s.wanted.BundleName {
			again = append(again, thing{kindBundle, w.Namespace, w.Namespace})
		}
	case "mutatingwebhookconfigurations":
		if w.Name != defaultTag {
			return nil
		}
		s.defaultRevision = text(w.Object, "metadata", "labels", revisionLabel)
		for id := range s.objects {
			if path, ok := strings.CutPrefix(id, "gateways "); ok {
				namespace, name, _ := strings.Cut(path, "/")
				again = append(again, thing{kindDeployment, namespace, name})
			}
		}
	case "deployments":
		if name := text(w.Object, "metadata", "labels", gatewayLabel); name != "" {
			again = append(again, thing{kindDeployment, w.Namespace, name})
		}
	case "gateways":
		again = append(thingsOf(w.Kind(), w.Namespace, w.Name), s.routesOf(w.Namespace, w.Name)...)
	default:
		again = append(again, thingsOf(w.Kind(), w.Namespace, w.Name)...)
	}
	return again
}

const gatewayLabel = "gateway.networking.k8s.io/gateway-name"

func thingsOf(kind, namespace, name string) []thing {
	switch kind {
	case "ingresses":
		return []thing{{kindIngress, namespace, name}}
	case "httproutes":
		return []thing{{kindRoute, namespace, name}}
	case "gateways":
		return []thing{{kindGateway, namespace, name}, {kindDeployment, namespace, name}}
	}
	return nil
}

// routesOf are those in a Gateway's namespace that name it.
func (s *state) routesOf(namespace, gateway string) (found []thing) {
	for id, object := range s.objects {
		if name, ok := strings.CutPrefix(id, key("httproutes", namespace, "")); ok && slices.Contains(parents(object), gateway) {
			found = append(found, thing{kindRoute, namespace, name})
		}
	}
	return found
}

// parents are the Gateways that a route names; here they are of its own namespace.
func parents(route map[string]any) (names []string) {
	for _, entry := range list(route, "spec", "parentRefs") {
		ref, _ := entry.(map[string]any)
		names = append(names, text(ref, "name"))
	}
	return names
}

// lives reports whether a namespace is there and stays. One from before the log is there.
func (s *state) lives(namespace string) bool {
	object, known := s.objects[key("namespaces", "", namespace)]
	return !known || text(object, "metadata", "deletionTimestamp") == ""
}

// lack says what of a thing is not as wanted; "" for what is, or is not wanted at all.
func (s *state) lack(t thing) string {
	if !s.lives(t.namespace) {
		return ""
	}
	switch t.kind {
	case kindBundle:
		return s.lackOfBundle(t)
	case kindIngress:
		return s.lackOfIngress(t)
	case kindRoute:
		return s.lackOfRoute(t)
	}
	gateway := s.objects[key("gateways", t.namespace, t.name)]
	switch {
	case gateway == nil || !s.wanted.Gateways:
		return ""
	case t.kind == kindGateway && condition(gateway, list(gateway, "status", "conditions"), "Programmed") != "True":
		return "it is not programmed"
	case t.kind == kindGateway && len(list(gateway, "status", "addresses")) == 0:
		return "it has no address"
	case t.kind == kindDeployment:
		return s.lackOfDeployment(t, gateway)
	}
	return ""
}

func (s *state) lackOfBundle(t thing) string {
	namespace := s.objects[key("namespaces", "", t.name)]
	if s.wanted.BundleName == "" || namespace == nil || slices.Contains(s.wanted.Excluded, t.name) {
		return ""
	}
	switch bundle := s.objects[key("configmaps", t.name, s.wanted.BundleName)]; {
	case bundle == nil:
		return "it is missing"
	case text(bundle, "data", s.wanted.BundleKey) != s.wanted.Bundle:
		return "it is another one"
	}
	return ""
}

func (s *state) lackOfIngress(t thing) string {
	ingress := s.objects[key("ingresses", t.namespace, t.name)]
	if s.wanted.IngressAddress == "" || ingress == nil {
		return ""
	}
	all := list(ingress, "status", "loadBalancer", "ingress")
	if len(all) != 1 {
		return "it has no address"
	}
	if first, _ := all[0].(map[string]any); text(first, "ip") != s.wanted.IngressAddress {
		return "it has another address"
	}
	return ""
}

func (s *state) lackOfRoute(t thing) string {
	route := s.objects[key("httproutes", t.namespace, t.name)]
	// One without its Gateway is nobody's.
	if !s.wanted.Gateways || route == nil || !slices.ContainsFunc(parents(route), func(name string) bool {
		return s.objects[key("gateways", t.namespace, name)] != nil
	}) {
		return ""
	}
	for _, entry := range list(route, "status", "parents") {
		parent, _ := entry.(map[string]any)
		if condition(route, list(parent, "conditions"), "Accepted") == "True" {
			return ""
		}
	}
	return "it is not accepted"
}

func (s *state) lackOfDeployment(t thing, gateway map[string]any) string {
	wanted := text(gateway, "metadata", "labels", revisionLabel)
	if wanted == "" {
		wanted = s.defaultRevision
	}
	for id, object := range s.objects {
		if strings.HasPrefix(id, key("deployments", t.namespace, "")) && text(object, "metadata", "labels", gatewayLabel) == t.name {
			if got := text(object, "spec", "template", "metadata", "annotations", revisionLabel); got != wanted {
				return fmt.Sprintf("it is of %q", got)
			}
			return ""
		}
	}
	return "it is missing"
}

// condition is the status of a condition of the object's present form; "" for none.
func condition(object map[string]any, conditions []any, name string) string {
	for _, entry := range conditions {
		c, _ := entry.(map[string]any)
		if text(c, "type") == name && number(c, "observedGeneration") == number(object, "metadata", "generation") {
			return text(c, "status")
		}
	}
	return ""
}

// StepName is a ConfigMap of the control plane's namespace into which whoever upgrades writes which step it is at, so that
// the log tells.
const (
	StepName = "upgrade-step"
	StepKey  = "step"
)

// judgeWanted follows what there is from write to write.
func (j *judge) judgeWanted() {
	now := &state{wanted: j.Wanted, objects: map[string]map[string]any{}}
	open := map[thing]Span{}
	step, last := "", time.Time{}
	for _, w := range j.history.Writes {
		if w.Answered.After(last) {
			last = w.Answered
		}
		if w.Kind() == "configmaps" && w.Namespace == j.Namespace && w.Name == StepName {
			step = text(w.Object, "data", StepKey)
		}
		for _, t := range now.take(w) {
			why := now.lack(t)
			span, lacking := open[t]
			switch {
			case why != "" && !lacking:
				open[t] = Span{Kind: t.kind, Namespace: t.namespace, Name: t.name, Since: w, Why: why, Step: step}
			case why == "" && lacking:
				span.Length = max(0, w.Answered.Sub(span.Since.Answered))
				span.gone = !now.exists(t)
				j.verdict.Spans = append(j.verdict.Spans, span)
				delete(open, t)
			}
		}
	}
	for _, span := range slices.SortedFunc(maps.Values(open), func(a, b Span) int {
		return strings.Compare(a.Kind+a.Namespace+a.Name, b.Kind+b.Namespace+b.Name)
	}) {
		j.convict(Unwanted, "%s %s/%s at the end: %s since %v", span.Kind, span.Namespace, span.Name, now.lack(thing{span.Kind, span.Namespace, span.Name}), span.Since)
		j.verdict.Violations[len(j.verdict.Violations)-1].Namespace = span.Namespace
		span.Length = max(0, last.Sub(span.Since.Answered))
		j.verdict.Spans = append(j.verdict.Spans, span)
	}
}

// exists reports whether the object is there and stays.
func (s *state) exists(t thing) bool {
	kind := map[string]string{kindIngress: "ingresses", kindRoute: "httproutes", kindGateway: "gateways", kindDeployment: "gateways"}[t.kind]
	return s.lives(t.namespace) && (kind == "" || s.objects[key(kind, t.namespace, t.name)] != nil)
}
