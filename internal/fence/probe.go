package fence

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Probe describes the writes of a guard of one lock, and a write that tests it as a dry run.
type Probe struct {
	single
	Guard Guard
	// Object is an object of Resource to create. It is nil if the API server would reject each write for another reason.
	Resource schema.GroupVersionResource
	Object   *unstructured.Unstructured
}

// MayHold reports whether a pod with the account, as "namespace/name", may hold the lock.
func (d Declaration) MayHold(account string) bool {
	return slices.Contains(d.ServiceAccounts, account) || slices.ContainsFunc(d.Others, func(other string) bool {
		prefix, any := strings.CutSuffix(other, "*")
		return other == account || any && strings.HasPrefix(account, prefix)
	})
}

// LockProbes returns a Probe without a Guard for each lock.
func LockProbes(declarations ...Declaration) []Probe {
	var all []Probe
	for _, d := range declarations {
		for _, s := range d.split() {
			all = append(all, Probe{single: s})
		}
	}
	return all
}

// Probes returns the probes of all guards.
func Probes(declarations ...Declaration) []Probe {
	var all []Probe
	for _, d := range declarations {
		for _, s := range d.split() {
			for _, g := range s.Guards {
				all = append(all, s.probe(g))
			}
		}
	}
	return all
}

// creatable maps resources to kinds that a probe can create.
var creatable = map[schema.GroupResource]schema.GroupVersionKind{
	{Resource: "configmaps"}:                                     {Version: "v1", Kind: "ConfigMap"},
	{Resource: "secrets"}:                                        {Version: "v1", Kind: "Secret"},
	{Resource: "serviceaccounts"}:                                {Version: "v1", Kind: "ServiceAccount"},
	{Resource: "services"}:                                       {Version: "v1", Kind: "Service"},
	{Group: "apps", Resource: "deployments"}:                     {Group: "apps", Version: "v1", Kind: "Deployment"},
	{Group: "autoscaling", Resource: "horizontalpodautoscalers"}: {Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
	{Group: "policy", Resource: "poddisruptionbudgets"}:          {Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
	{Group: "coordination.k8s.io", Resource: "leases"}:           {Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"},
	{Group: "rbac.authorization.k8s.io", Resource: "roles"}:      {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
	{Group: "networking.k8s.io", Resource: "networkpolicies"}:    {Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
}

// content returns the minimal spec of a kind, or nil. An API server rejects invalid objects before it evaluates policies.
func content(kind string) map[string]any {
	labels := map[string]any{"app": probeName}
	switch kind {
	case "Service":
		return map[string]any{"type": "ExternalName", "externalName": "probe.invalid"} // allocates no address
	case "HorizontalPodAutoscaler":
		return map[string]any{"maxReplicas": int64(1), "scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": probeName}}
	case "PodDisruptionBudget":
		return map[string]any{"selector": map[string]any{"matchLabels": labels}}
	case "Deployment":
		return map[string]any{
			"replicas": int64(0), "selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{
				"metadata": map[string]any{"labels": labels},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "probe", "image": "probe"}}},
			},
		}
	}
	return nil
}

const probeName = "incumbent-fence-probe"

func (s single) probe(g Guard) Probe {
	p := Probe{single: s, Guard: g}
	if !slices.Contains(g.Operations(), "CREATE") {
		return p
	}
	for _, resource := range g.Resources {
		kind := creatable[schema.GroupResource{Group: g.Group, Resource: resource}]
		if kind.Kind == "" || len(g.Versions) > 0 && !slices.Contains(g.Versions, kind.Version) {
			continue
		}
		p.Resource = kind.GroupVersion().WithResource(resource)
		p.Object = &unstructured.Unstructured{}
		p.Object.SetGroupVersionKind(kind)
		if spec := content(kind.Kind); spec != nil {
			p.Object.Object["spec"] = spec
		}
		p.Object.SetName(append(slices.Clone(g.Names), probeName)[0])
		p.Object.SetNamespace(append(slices.Clone(g.Namespaces), s.Namespace)[0])
		p.Object.SetLabels(g.OwnLabels())
		return p
	}
	return p
}
