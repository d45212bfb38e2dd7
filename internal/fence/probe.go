package fence

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Probe is one group of guarded writes with a write that tries it. Made dry, it is judged
// as any other and changes nothing.
type Probe struct {
	// Lock, Namespace and Name are the lock object's.
	Lock            LockKind
	Namespace, Name string
	// Coordinated: the holder is called after its Pod and the lock.
	Coordinated bool
	// ServiceAccounts are those whose writes are judged.
	ServiceAccounts []string
	// Mode is the mode for a write that is found wrong is to be treated.
	Mode  Mode
	Guard Guard
	// Resource and Object say which object to create; Object is nil if there is no write that
	// the API server would judge by the fence and not refuse for another reason.
	Resource schema.GroupVersionResource
	Object   *unstructured.Unstructured
}

// Where names the lock, for people.
func (p Probe) Where() string { return fmt.Sprintf("%s %s/%s", p.Lock, p.Namespace, p.Name) }

// Probes lists what declarations guard, with writes to try it.
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

// creatable are kinds that can be created, by resource: most of these without any content.
var creatable = map[schema.GroupResource]schema.GroupVersionKind{
	{Resource: "configmaps"}:                                  {Version: "v1", Kind: "ConfigMap"},
	{Resource: "secrets"}:                                     {Version: "v1", Kind: "Secret"},
	{Resource: "serviceaccounts"}:                             {Version: "v1", Kind: "ServiceAccount"},
	{Resource: "services"}:                                    {Version: "v1", Kind: "Service"},
	{Group: "apps", Resource: "deployments"}:                  {Group: "apps", Version: "v1", Kind: "Deployment"},
	{Group: "coordination.k8s.io", Resource: "leases"}:        {Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"},
	{Group: "rbac.authorization.k8s.io", Resource: "roles"}:   {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
	{Group: "networking.k8s.io", Resource: "networkpolicies"}: {Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
}

// content is the least that the others need: an API server rejects invalid objects before it evaluates policies.
func content(kind string) map[string]any {
	labels := map[string]any{"app": probeName}
	switch kind {
	case "Service":
		return map[string]any{"type": "ExternalName", "externalName": "probe.invalid"} // which takes no address
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
	p := Probe{Lock: s.Lock, Namespace: s.Namespace, Name: s.lock, Coordinated: s.Coordinated, ServiceAccounts: s.ServiceAccounts, Mode: s.Mode, Guard: g}
	if p.Mode == "" {
		p.Mode = Deny
	}
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
		p.Object.SetLabels(g.Labels)
		return p
	}
	return p
}
