package fence

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Guard is a group of writes.
type Guard struct {
	// Group is the API group, "" for the core one.
	Group string `json:"group,omitempty"`
	// Versions of the group; none means all.
	Versions []string `json:"versions,omitempty"`
	// Resources in the plural, with their subresources: "configmaps", "gateways/status",
	// "deployments/*".
	Resources []string `json:"resources"`
	// Verbs among create, update, delete and connect; a patch is an update. None means
	// create, update and delete.
	Verbs []string `json:"verbs,omitempty"`
	// Names of the objects; none means all.
	Names []string `json:"names,omitempty"`
	// Labels that the object has before the write or after it; none means all. Most
	// subresources are judged by an object of their own, which has no labels: guard those
	// by Names or Namespaces.
	Labels map[string]string `json:"labels,omitempty"`
	// Namespaces that they lie in; none means all. A guard with Namespaces matches
	// namespaced kinds alone.
	Namespaces []string `json:"namespaces,omitempty"`
	// Wide says that neither Names nor Labels nor Namespaces is meant to narrow it down.
	// While the lock is missing the API server refuses the guarded writes of everyone,
	// not of the declared accounts alone, because it looks for the lock before it looks
	// at who writes.
	Wide bool `json:"wide,omitempty"`
}

// operations are the API server's words for verbs.
var operations = map[string]string{"create": "CREATE", "update": "UPDATE", "delete": "DELETE", "connect": "CONNECT"}

// labelledSubresources are those whose writes are judged by the object itself, with its
// labels. A Scale, an Eviction or a Binding is an object of its own without them.
var labelledSubresources = []string{"status", "ephemeralcontainers", "resize", "finalize", "approval"}

// unjudged are resources that an API server's policies never see, by group.
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

// clusterScoped are Kubernetes' own kinds without a namespace, by group. Others are
// found out when a fence is installed.
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
		wrong("group %q: name one API group, such as apps, or leave it out for the core one: %s", g.Group, problem)
	}
	for _, version := range g.Versions {
		if version != "*" && len(validation.IsDNS1035Label(version)) > 0 {
			wrong("version %q: give one such as v1, or leave them out for all", version)
		}
	}
	if len(g.Resources) == 0 {
		wrong("no resources: name them in the plural, such as configmaps or gateways/status")
	}
	for _, resource := range g.Resources {
		if err := g.validateResource(resource); err != nil {
			errs = append(errs, err)
		}
	}
	for _, verb := range g.Verbs {
		if operations[verb] == "" {
			wrong("verb %q: give create, update, delete or connect; a patch is an update", verb)
		}
	}
	g.validateObjects(revisions, wrong)
	if !g.narrow() && !g.Wide {
		wrong("neither names nor labels nor namespaces narrow it down: while the lock is missing, everyone's writes to these " +
			"would be refused; narrow it down, or say wide: true if nobody else writes them")
	}
	return errors.Join(errs...)
}

// validateObjects checks what narrows the guard down.
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
		if _, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchLabels: g.inRevision(revision).Labels}); err != nil {
			wrong("labels: %w", err)
			break
		}
	}
	if g.perRevision() && len(revisions) == 0 {
		wrong("a label with %s needs revisions: list them", RevisionWord)
	}
}

// validateResource reports what cannot be guarded at all, or not by what narrows it down.
func (g Guard) validateResource(resource string) error {
	main, sub, within := strings.Cut(resource, "/")
	switch {
	case main == "" || main == "*" || strings.ToLower(resource) != resource:
		return fmt.Errorf("resource %q: name it in the plural and in lower case, such as configmaps or gateways/status; "+
			"not all at once, which would cover the locks and the policies themselves", resource)
	case len(validation.IsDNS1123Label(main)) > 0, within && sub != "*" && len(validation.IsDNS1123Label(sub)) > 0:
		return fmt.Errorf("resource %q: that is no resource's name: give one such as configmaps, gateways/status or deployments/*", resource)
	case slices.Contains(unjudged[g.Group], main):
		return fmt.Errorf("resource %q: an API server judges no write of this kind by policies, so that no fence can guard it: leave it to RBAC", resource)
	case len(g.Labels) > 0 && sub != "" && !slices.Contains(labelledSubresources, sub):
		return fmt.Errorf("resource %q: such a write is judged by an object without labels, which passes a guard with labels: "+
			"put it into a guard of its own, narrowed down by names or namespaces", resource)
	case len(g.Namespaces) > 0 && slices.Contains(clusterScoped[g.Group], main):
		return fmt.Errorf("resource %q: it lies in no namespace, so that namespaces do not narrow it down: give names or labels", resource)
	case (sub == "" || sub == "*") && len(g.Names)+len(g.Labels) == 0 && isLockResource(g.Group, main):
		// Its lock's absence would refuse the locks of all others, and what other elections of the
		// cluster and its nodes renew all the time.
		return fmt.Errorf("resource %q: locks of other elections are such objects, and would be refused while this election's lock is missing: "+
			"narrow it down by names or labels", resource)
	}
	return nil
}

// isLockResource: objects of this kind are locks.
func isLockResource(group, resource string) bool {
	for _, kind := range []LockKind{ConfigMap, Lease} {
		if g, r := kind.resource(); g == group && r == resource {
			return true
		}
	}
	return false
}

// String is short, for metrics and pages: what is guarded, and by what it is narrowed down.
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

// perRevision reports whether the objects of revisions are told apart.
func (g Guard) perRevision() bool {
	for _, value := range g.Labels {
		if strings.Contains(value, RevisionWord) {
			return true
		}
	}
	return false
}

// inRevision puts a revision's name where RevisionWord stands.
func (g Guard) inRevision(revision string) Guard {
	labels := map[string]string{}
	for key, value := range g.Labels {
		labels[key] = strings.ReplaceAll(value, RevisionWord, revision)
	}
	if len(labels) > 0 {
		g.Labels = labels
	}
	return g
}
