package gatewaydeploy

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// defaultFields lists the fields that the overlay of a Gateway may change. Its author may have no other rights than to write Gateways
// and ConfigMaps. So a field must not give the Pods rights, code, files or addresses, and must not affect other objects. For example, a
// probe of another host is a request by the kubelet. The content of a listed field is not checked, except the keys of labels and
// annotations, and the namespaces of an affinity. "$patch" allows the removal of elements, and "?" the removal of the field.
func defaultFields() (all []string) {
	add := func(prefix string, names ...string) {
		for _, name := range names {
			all = append(all, prefix+"."+name)
		}
	}
	for _, kind := range patched {
		add(kind.overlay()+".metadata", "labels")
		if kind != ServiceAccount { // annotations give it roles of cloud providers
			add(kind.overlay()+".metadata", "annotations")
		}
	}
	add("service.spec", "type", "externalTrafficPolicy", "internalTrafficPolicy", "ipFamilies", "ipFamilyPolicy", "loadBalancerClass",
		"allocateLoadBalancerNodePorts", "healthCheckNodePort", "sessionAffinity", "sessionAffinityConfig", "trafficDistribution",
		"ports.nodePort", "ports.$patch")
	add("deployment.spec", "replicas", "minReadySeconds", "progressDeadlineSeconds", "revisionHistoryLimit", "strategy")
	add("deployment.spec.template.metadata", "labels", "annotations")
	add("deployment.spec.template.spec", "affinity", "nodeSelector", "tolerations", "topologySpreadConstraints", "terminationGracePeriodSeconds",
		"resources.limits", "resources.requests")
	const container = "deployment.spec.template.spec.containers"
	add(container, "resizePolicy", "resources.limits", "resources.requests")
	for _, probe := range []string{"livenessProbe", "readinessProbe", "startupProbe"} {
		add(container, probe+"?")
		add(container+"."+probe, "httpGet?", "httpGet.path", "httpGet.port", "httpGet.scheme", "httpGet.httpHeaders", "tcpSocket?", "tcpSocket.port",
			"grpc", "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold", "terminationGracePeriodSeconds")
	}
	add("horizontalPodAutoscaler.spec", "minReplicas", "maxReplicas", "metrics", "behavior")
	add("podDisruptionBudget.spec", "minAvailable", "maxUnavailable", "unhealthyPodEvictionPolicy")
	return all
}

// fields is the tree of the fields that an overlay may change.
type fields struct {
	// allowed reports whether the field and its content may change.
	allowed bool
	// unreserved reports whether the field has labels or annotations that may change, except reserved keys.
	unreserved bool
	// own reports whether the content must not select Pods of other namespaces.
	own bool
	// removable reports whether the field may be null.
	removable bool
	// mergeKey is the field that identifies the elements of a list, or "".
	mergeKey string
	// below has the fields of an object, or of the elements of a list.
	below map[string]*fields
}

// newFields returns the default fields and more, which an administrator allows.
func newFields(more []string) (*fields, error) {
	all := &fields{}
	var errs []error
	for _, path := range defaultFields() {
		f, err := all.add(path)
		errs = append(errs, err)
		if err == nil {
			f.unreserved = strings.HasSuffix(path, ".labels") || strings.HasSuffix(path, ".annotations")
			f.allowed = !f.unreserved && !f.removable
			f.own = strings.HasSuffix(path, ".affinity")
		}
	}
	for _, path := range more {
		f, err := all.add(path)
		if errs = append(errs, err); err == nil {
			f.allowed, f.own = true, false
		}
	}
	return all, errors.Join(errs...)
}

// ValidateFields returns an error for each path that is not a field of an overlay.
func ValidateFields(paths []string) error {
	_, err := newFields(paths)
	return err
}

// add adds a path, which begins with the key of an overlay.
func (f *fields) add(path string) (*fields, error) {
	bare, removable := strings.CutSuffix(path, "?")
	names := strings.Split(bare, ".")
	kind := slices.IndexFunc(patched, func(k Kind) bool { return k.overlay() == names[0] })
	if kind < 0 {
		return nil, fmt.Errorf("field %q does not begin with a key of an overlay, such as deployment", path)
	}
	f = f.child(names[0])
	of := reflect.TypeOf(patched[kind].empty()).Elem()
	for _, name := range names[1:] {
		list := of.Kind() == reflect.Slice
		switch {
		case list && f.mergeKey == "":
			return nil, fmt.Errorf("field %q: the list before %s has no merge key; allow the list", path, name)
		case list && name == "$patch":
			f = f.child(name)
			continue
		case list:
			of = of.Elem()
		}
		in, found := fieldOf(of, name)
		if !found {
			return nil, fmt.Errorf("field %q: %s has no field %s", path, of, name)
		}
		f = f.child(name)
		f.mergeKey = in.Tag.Get("patchMergeKey")
		if of = in.Type; of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
	}
	f.removable = f.removable || removable
	return f, nil
}

func (f *fields) child(name string) *fields {
	if f.below == nil {
		f.below = map[string]*fields{}
	}
	if f.below[name] == nil {
		f.below[name] = &fields{}
	}
	return f.below[name]
}

// fieldOf returns the field of a struct with a name in JSON.
func fieldOf(of reflect.Type, name string) (found reflect.StructField, ok bool) {
	if of.Kind() != reflect.Struct {
		return found, false
	}
	for i := range of.NumField() {
		field := of.Field(i)
		json, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case json == "": // embedded
			found, ok = fieldOf(field.Type, name)
		case json == name:
			return field, true
		}
		if ok {
			return found, true
		}
	}
	return found, false
}

// rejected returns the path of the first field that a patch of a document must not change, or "". It includes directives of a strategic merge,
// which are keys that begin with "$".
func (f *fields) rejected(path string, patch, document any) string {
	switch {
	case f == nil:
		if same(patch, document) {
			return ""
		}
		return path
	case f.own:
		return others(path, patch)
	case f.allowed, f.removable && patch == nil:
		return ""
	case f.mergeKey != "":
		return f.rejectedElement(path, patch, document)
	}
	values, isMap := patch.(map[string]any)
	if !isMap {
		return path
	}
	present, _ := document.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		// Directives count with the value null, too: it removes a field.
		directive := strings.HasPrefix(name, "$")
		if directive && f.below[name] == nil && !f.unreserved {
			return strings.TrimPrefix(path+"."+name, ".")
		}
		if f.unreserved {
			if directive || reserved(name) && !same(values[name], present[name]) {
				return path + "[" + name + "]"
			}
			continue
		}
		if at := f.below[name].rejected(strings.TrimPrefix(path+"."+name, "."), values[name], present[name]); at != "" {
			return at
		}
	}
	return ""
}

// rejectedElement is like rejected for a list whose elements have a merge key. The key selects an element. A new element is a change of the key.
func (f *fields) rejectedElement(path string, patch, document any) string {
	elements, isList := patch.([]any)
	if !isList {
		return path
	}
	present, _ := document.([]any)
	for _, one := range elements {
		element, isMap := one.(map[string]any)
		if key, has := element[f.mergeKey]; !isMap || has && key == nil {
			return path
		}
		var selected any
		for _, candidate := range present {
			if fields, _ := candidate.(map[string]any); same(fields[f.mergeKey], element[f.mergeKey]) {
				selected = candidate
				break
			}
		}
		inner := &fields{below: maps.Clone(f.below)}
		if removal := inner.below["$patch"]; removal != nil && element["$patch"] != "delete" {
			delete(inner.below, "$patch")
		}
		if at := inner.rejected(path, element, selected); at != "" {
			return at
		}
	}
	return ""
}

// others returns the path of the first field of an affinity that selects Pods by their namespaces, or "". Pods of other namespaces could
// not be scheduled to the nodes of such Pods.
func others(path string, value any) string {
	switch value := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			at := path + "." + name
			if name != "namespaces" && name != "namespaceSelector" {
				at = others(at, value[name])
			}
			if at != "" {
				return at
			}
		}
	case []any:
		for _, element := range value {
			if at := others(path, element); at != "" {
				return at
			}
		}
	}
	return ""
}

// same reports whether a value of a patch, for example the kind, repeats the value of the document. Objects and lists do not count.
func same(patch, document any) bool {
	switch patch.(type) {
	case map[string]any, []any:
		return false
	}
	return patch == document
}

// reserved reports whether a label or annotation identifies an object, controls a tool or changes the security of Pods.
func reserved(name string) bool {
	domain := domainOf(name)
	return name == "istio.io/rev" || name == formerGatewayLabel ||
		inDomains(domain, reservedDomains) || inDomains(domain, injectionDomains)
}

// inDomains reports whether a domain is in a list, or a subdomain of one.
func inDomains(domain string, all []string) bool {
	return slices.ContainsFunc(all, func(one string) bool { return domain == one || strings.HasSuffix(domain, "."+one) })
}

// injectionDomains lists the domains of the keys with which Istio's injection changes Pods.
var injectionDomains = []string{"sidecar.istio.io", "inject.istio.io"}

// reservedDomains lists the domains of keys that only this controller sets, of ownership keys (tools delete objects that have their
// keys), of security fields of Pods, and of well-known tools that add containers, Secrets, networks or roles of cloud providers.
var reservedDomains = []string{
	controlDomain, gateway.GroupName, "incumbent.dev",
	"applyset.kubernetes.io", "argoproj.io", "toolkit.fluxcd.io", "helm.sh", "kubectl.kubernetes.io",
	"config.k8s.io", "k14s.io", "cattle.io",
	"apparmor.security.beta.kubernetes.io", "seccomp.security.alpha.kubernetes.io",
	"vault.hashicorp.com", "consul.hashicorp.com", "linkerd.io", "dapr.io", "opentelemetry.io", "k8s.v1.cni.cncf.io", "v1.multus-cni.io",
	"eks.amazonaws.com", "iam.amazonaws.com", "iam.gke.io", "azure.workload.identity", "aadpodidbinding.k8s.io",
}
