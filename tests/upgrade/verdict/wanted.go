package verdict

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"incumbent.dev/incumbent/internal/audit"
)

// Wanted describes the desired state of objects. Empty parts are not checked.
type Wanted struct {
	// Bundle is the value of BundleKey in ConfigMap BundleName, in every namespace except Excluded.
	BundleName, BundleKey, Bundle string
	Excluded                      []string
	// IngressAddress is the address of every Ingress.
	IngressAddress string
	// Gateways requires that each Gateway is programmed, has an address and is deployed by the default revision, and that
	// routes are accepted.
	Gateways bool
}

// Span is a period without the desired state of an object.
type Span struct {
	Kind, Namespace, Name string
	// Since is the write that began it.
	Since audit.Write
	// Reason is the first difference, Step the step of the upgrade in which the span began.
	Reason, Step string
	Length       time.Duration
}

// Cause returns the cause of the span in a few words.
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

// state is the set of objects at one version.
type state struct {
	wanted *Wanted
	// objects are keyed by kind, namespace and name.
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

// target identifies one check.
type target struct{ kind, namespace, name string }

// apply applies a write and returns the checks that it affects.
func (s *state) apply(w audit.Write) (affected []target) {
	id := key(w.Kind(), w.Namespace, w.Name)
	switch {
	case w.Deleted && w.Kind() == "namespaces":
		// Its objects are deleted without audit events. A namespace that the log does not contain counts as existing.
		s.objects[id] = map[string]any{"metadata": map[string]any{"deletionTimestamp": "gone"}}
	case w.Deleted:
		delete(s.objects, id)
	default:
		s.objects[id] = w.Object
	}
	switch w.Kind() {
	case "namespaces":
		affected = append(affected, target{kindBundle, w.Name, w.Name})
		for id := range s.objects {
			kind, path, _ := strings.Cut(id, " ")
			if namespace, name, _ := strings.Cut(path, "/"); namespace == w.Name {
				affected = append(affected, targetsOf(kind, namespace, name)...)
			}
		}
	case "configmaps":
		if w.Name == s.wanted.BundleName {
			affected = append(affected, target{kindBundle, w.Namespace, w.Namespace})
		}
	case "mutatingwebhookconfigurations":
		if w.Name != defaultTag {
			return nil
		}
		s.defaultRevision = text(w.Object, "metadata", "labels", revisionLabel)
		for id := range s.objects {
			if path, ok := strings.CutPrefix(id, "gateways "); ok {
				namespace, name, _ := strings.Cut(path, "/")
				affected = append(affected, target{kindDeployment, namespace, name})
			}
		}
	case "deployments":
		if name := text(w.Object, "metadata", "labels", gatewayLabel); name != "" {
			affected = append(affected, target{kindDeployment, w.Namespace, name})
		}
	case "gateways":
		affected = append(targetsOf(w.Kind(), w.Namespace, w.Name), s.routesOf(w.Namespace, w.Name)...)
	default:
		affected = append(affected, targetsOf(w.Kind(), w.Namespace, w.Name)...)
	}
	return affected
}

const gatewayLabel = "gateway.networking.k8s.io/gateway-name"

func targetsOf(kind, namespace, name string) []target {
	switch kind {
	case "ingresses":
		return []target{{kindIngress, namespace, name}}
	case "httproutes":
		return []target{{kindRoute, namespace, name}}
	case "gateways":
		return []target{{kindGateway, namespace, name}, {kindDeployment, namespace, name}}
	}
	return nil
}

// routesOf returns the routes in a Gateway's namespace that name it.
func (s *state) routesOf(namespace, gateway string) (found []target) {
	for id, object := range s.objects {
		if name, ok := strings.CutPrefix(id, key("httproutes", namespace, "")); ok && slices.Contains(parents(object), gateway) {
			found = append(found, target{kindRoute, namespace, name})
		}
	}
	return found
}

// parents returns the Gateways that a route names. They are in its own namespace.
func parents(route map[string]any) (names []string) {
	for _, entry := range list(route, "spec", "parentRefs") {
		ref, _ := entry.(map[string]any)
		names = append(names, text(ref, "name"))
	}
	return names
}

// exists reports whether a namespace exists and is not being deleted.
func (s *state) exists(namespace string) bool {
	object, known := s.objects[key("namespaces", "", namespace)]
	return !known || text(object, "metadata", "deletionTimestamp") == ""
}

// missing returns the difference from the desired state, or "".
func (s *state) missing(t target) string {
	if !s.exists(t.namespace) {
		return ""
	}
	switch t.kind {
	case kindBundle:
		return s.missingBundle(t)
	case kindIngress:
		return s.missingIngress(t)
	case kindRoute:
		return s.missingRoute(t)
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
		return s.missingDeployment(t, gateway)
	}
	return ""
}

func (s *state) missingBundle(t target) string {
	namespace := s.objects[key("namespaces", "", t.name)]
	if s.wanted.BundleName == "" || namespace == nil || slices.Contains(s.wanted.Excluded, t.name) {
		return ""
	}
	switch bundle := s.objects[key("configmaps", t.name, s.wanted.BundleName)]; {
	case bundle == nil:
		return "it is missing"
	case text(bundle, "data", s.wanted.BundleKey) != s.wanted.Bundle:
		return "it has other content"
	}
	return ""
}

func (s *state) missingIngress(t target) string {
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

func (s *state) missingRoute(t target) string {
	route := s.objects[key("httproutes", t.namespace, t.name)]
	// No controller handles a route without its Gateway.
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

func (s *state) missingDeployment(t target, gateway map[string]any) string {
	wanted := text(gateway, "metadata", "labels", revisionLabel)
	if wanted == "" {
		wanted = s.defaultRevision
	}
	for id, object := range s.objects {
		if strings.HasPrefix(id, key("deployments", t.namespace, "")) && text(object, "metadata", "labels", gatewayLabel) == t.name {
			if got := text(object, "spec", "template", "metadata", "annotations", revisionLabel); got != wanted {
				return fmt.Sprintf("it is of revision %q", got)
			}
			return ""
		}
	}
	return "it is missing"
}

// condition returns the status of a condition of the current generation, or "".
func condition(object map[string]any, conditions []any, name string) string {
	for _, entry := range conditions {
		c, _ := entry.(map[string]any)
		if text(c, "type") == name && at[float64](c, "observedGeneration") == at[float64](object, "metadata", "generation") {
			return text(c, "status")
		}
	}
	return ""
}

// StepName is a ConfigMap in the control plane's namespace that contains the current step of the upgrade.
const (
	StepName = "upgrade-step"
	StepKey  = "step"
)

// judgeWanted applies the writes one by one and checks the affected objects.
func (j *judge) judgeWanted() {
	now := &state{wanted: j.Wanted, objects: map[string]map[string]any{}}
	open := map[target]Span{}
	step := ""
	var last time.Time
	for w := range j.history.All() {
		if w.Answered.After(last) {
			last = w.Answered
		}
		if w.Kind() == "configmaps" && w.Namespace == j.Namespace && w.Name == StepName {
			step = text(w.Object, "data", StepKey)
		}
		for _, t := range now.apply(w) {
			reason := now.missing(t)
			span, isOpen := open[t]
			switch {
			case reason != "" && !isOpen:
				open[t] = Span{Kind: t.kind, Namespace: t.namespace, Name: t.name, Since: w, Reason: reason, Step: step}
			case reason == "" && isOpen:
				span.Length = max(0, w.Answered.Sub(span.Since.Answered))
				j.verdict.Spans = append(j.verdict.Spans, span)
				delete(open, t)
			}
		}
	}
	for _, span := range slices.SortedFunc(maps.Values(open), func(a, b Span) int {
		return strings.Compare(a.Kind+a.Namespace+a.Name, b.Kind+b.Namespace+b.Name)
	}) {
		j.add(Unwanted, "%s %s/%s at the end: %s since %v", span.Kind, span.Namespace, span.Name, now.missing(target{span.Kind, span.Namespace, span.Name}), span.Since)
		j.verdict.Violations[len(j.verdict.Violations)-1].Namespace = span.Namespace
		span.Length = max(0, last.Sub(span.Since.Answered))
		j.verdict.Spans = append(j.verdict.Spans, span)
	}
}
