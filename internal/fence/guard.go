package fence

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"incumbent.dev/incumbent/internal/record"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Guard selects writes that only the leader may make.
type Guard struct {
	// Group is the API group. "" is the core group.
	Group string `json:"group,omitempty"`
	// Versions of the group. The default is all.
	Versions []string `json:"versions,omitempty"`
	// Resources in the plural, with their subresources: "configmaps", "gateways/status",
	// "deployments/*".
	Resources []string `json:"resources"`
	// Verbs are create, update, delete and connect. A patch is an update. The default is create, update and delete.
	Verbs []string `json:"verbs,omitempty"`
	// Names of the objects. The default is all.
	Names []string `json:"names,omitempty"`
	// Labels of the object before or after the write. The default is all objects. The objects of most subresources have no
	// labels. Select them by Names or Namespaces.
	Labels map[string]string `json:"labels,omitempty"`
	// Own are the labels that the candidates set, in addition to Labels, on each object that they write. While the lock is missing, only
	// writes of objects with these labels are rejected. The default is all guarded writes. So a control plane whose lock does not exist yet
	// does not stop the writers of other objects with Labels.
	Own map[string]string `json:"own,omitempty"`
	// Namespaces of the objects. The default is all. A guard with Namespaces matches only namespaced kinds.
	Namespaces []string `json:"namespaces,omitempty"`
	// Wide permits a guard without Names, Labels and Namespaces. While the lock is missing, the API server rejects guarded
	// writes of all users, because it looks up the lock before it evaluates the user.
	Wide bool `json:"wide,omitempty"`
}

// verbs are the names of the admission operations, in lower case.
var verbs = []string{"create", "update", "delete", "connect"}

// labelledSubresources are subresources whose admission object is the object itself, with its labels. A Scale, Eviction or
// Binding is a separate object without labels.
var labelledSubresources = []string{"status", "ephemeralcontainers", "resize", "finalize", "approval"}

// unjudged maps groups to resources that policies do not apply to.
var unjudged = map[string][]string{
	"admissionregistration.k8s.io": {
		"validatingadmissionpolicies", "validatingadmissionpolicybindings",
		"mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
	},
	"authentication.k8s.io": {"selfsubjectreviews", "tokenreviews"},
	"authorization.k8s.io": {
		"localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews",
	},
}

// clusterScoped maps groups to cluster-scoped kinds of Kubernetes. Others are discovered during installation.
var clusterScoped = map[string][]string{
	"":                             {"namespaces", "nodes", "persistentvolumes", "componentstatuses"},
	"admissionregistration.k8s.io": {"validatingwebhookconfigurations", "mutatingwebhookconfigurations"},
	"apiextensions.k8s.io":         {"customresourcedefinitions"},
	"apiregistration.k8s.io":       {"apiservices"},
	"certificates.k8s.io":          {"certificatesigningrequests", "clustertrustbundles"},
	"rbac.authorization.k8s.io":    {"clusterroles", "clusterrolebindings"},
	"storage.k8s.io":               {"storageclasses", "volumeattachments", "csinodes", "csidrivers"},
	"scheduling.k8s.io":            {"priorityclasses"},
	"networking.k8s.io":            {"ingressclasses", "ipaddresses", "servicecidrs"},
	"node.k8s.io":                  {"runtimeclasses"},
}

func (g Guard) validate(revisions []string) error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, problem := range orNothing(g.Group, validation.IsDNS1123Subdomain) {
		wrong("group %q: give one API group, such as apps, or none for the core group: %s", g.Group, problem)
	}
	for _, version := range g.Versions {
		if version != "*" && len(validation.IsDNS1035Label(version)) > 0 {
			wrong("version %q: give a version such as v1, or none for all", version)
		}
	}
	if len(g.Resources) == 0 {
		wrong("no resources: give plural names, such as configmaps or gateways/status")
	}
	for _, resource := range g.Resources {
		if err := g.validateResource(resource); err != nil {
			errs = append(errs, err)
		}
	}
	for _, verb := range g.Verbs {
		if !slices.Contains(verbs, verb) {
			wrong("verb %q: give create, update, delete or connect; a patch is an update", verb)
		}
	}
	g.validateObjects(revisions, wrong)
	if !g.narrow() && !g.Wide {
		wrong("no names, labels or namespaces: while the lock is missing, writes of all users to these resources " +
			"would be rejected. Select objects, or set wide: true if there are no other writers")
	}
	return errors.Join(errs...)
}

// validateObjects checks names, namespaces and labels.
func (g Guard) validateObjects(revisions []string, wrong func(format string, args ...any)) {
	for _, name := range g.Names {
		for _, problem := range validation.IsDNS1123Subdomain(name) {
			wrong("name %q: %s", name, problem)
		}
	}
	for _, namespace := range g.Namespaces {
		for _, problem := range validation.IsDNS1123Label(namespace) {
			wrong("namespace %q: %s", namespace, problem)
		}
	}
	for _, revision := range append(revisions[:len(revisions):len(revisions)], "x") {
		if _, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchLabels: g.inRevision(revision).OwnLabels()}); err != nil {
			wrong("labels: %w", err)
			break
		}
	}
	if hasRevision(g.OwnLabels()) && len(revisions) == 0 {
		wrong("a label with %s needs revisions: list them", RevisionWord)
	}
}

// validateResource returns an error if the resource cannot be guarded, or not with these selectors.
func (g Guard) validateResource(resource string) error {
	main, sub, within := strings.Cut(resource, "/")
	switch {
	case main == "" || main == "*" || strings.ToLower(resource) != resource:
		return fmt.Errorf("resource %q: give a plural name in lower case, such as configmaps or gateways/status. "+
			"A wildcard for all resources would include locks and policies", resource)
	case len(validation.IsDNS1123Label(main)) > 0, within && sub != "*" && len(validation.IsDNS1123Label(sub)) > 0:
		return fmt.Errorf("resource %q: invalid name: give a name such as configmaps, gateways/status or deployments/*", resource)
	case slices.Contains(unjudged[g.Group], main):
		return fmt.Errorf("resource %q: policies do not apply to this kind: use RBAC instead", resource)
	case len(g.OwnLabels()) > 0 && sub != "" && !slices.Contains(labelledSubresources, sub):
		return fmt.Errorf("resource %q: the object of this subresource has no labels: "+
			"use a separate guard with names or namespaces", resource)
	case len(g.Namespaces) > 0 && slices.Contains(clusterScoped[g.Group], main):
		return fmt.Errorf("resource %q: it is cluster-scoped: use names or labels instead of namespaces", resource)
	case (sub == "" || sub == "*") && len(g.Names)+len(g.Labels) == 0 && isLockResource(g.Group, main):
		// If the lock were missing, the policy would reject renewals of all other locks and of node Leases.
		return fmt.Errorf("resource %q: locks of other elections are such objects, and would be rejected while this lock is missing: "+
			"use names or labels", resource)
	}
	return nil
}

// isLockResource reports whether locks are of this kind.
func isLockResource(group, resource string) bool {
	for _, kind := range []record.Kind{record.ConfigMap, record.Lease} {
		if g, r := kind.Resource(); g == group && r == resource {
			return true
		}
	}
	return false
}

// String returns a short description for metrics and pages.
func (g Guard) String() string {
	text := strings.Join(g.Resources, ",")
	if g.Group != "" {
		text = g.Group + "/" + text
	}
	for _, by := range [][]string{g.Names, g.Namespaces} {
		if len(by) > 0 {
			text += " " + strings.Join(by, ",")
		}
	}
	if len(g.Labels) > 0 {
		text += " " + labels.Set(g.Labels).String()
	}
	return text
}

func (g Guard) narrow() bool { return len(g.Names)+len(g.Labels)+len(g.Namespaces) > 0 }

// OwnLabels returns the labels of each object that the candidates write: Labels and Own.
func (g Guard) OwnLabels() map[string]string {
	all := maps.Clone(g.Own)
	if all == nil {
		return g.Labels
	}
	maps.Copy(all, g.Labels)
	return all
}

// perRevision reports whether labels distinguish revisions.
func (g Guard) perRevision() bool { return hasRevision(g.Labels) }

func hasRevision(labels map[string]string) bool {
	for _, value := range labels {
		if strings.Contains(value, RevisionWord) {
			return true
		}
	}
	return false
}

// inRevision replaces RevisionWord by a revision.
func (g Guard) inRevision(revision string) Guard {
	g.Labels, g.Own = maps.Clone(g.Labels), maps.Clone(g.Own)
	for _, labels := range []map[string]string{g.Labels, g.Own} {
		for key, value := range labels {
			labels[key] = strings.ReplaceAll(value, RevisionWord, revision)
		}
	}
	return g
}
