package gatewaydeploy

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/internal/tagging"
)

// defaultFields lists the fields that the overlay of a Gateway may change. Its author may have no other rights than to write Gateways
// and ConfigMaps. So a field must not give the Pods rights, code, files or addresses, and must not affect other objects. For example, a
// probe of another host is a request by the kubelet. Each path ends at a value or a map, so that a field that a new version of Kubernetes
// adds is rejected. "$patch" allows the removal of elements, and "?" the removal of the field.
func defaultFields() (all []string) {
	add := func(prefix string, names ...string) { all = append(all, under(prefix, names...)...) }
	for _, kind := range patched {
		add(kind.overlay()+".metadata", "labels")
		if kind != ServiceAccount { // annotations give it roles of cloud providers
			add(kind.overlay()+".metadata", "annotations")
		}
	}
	add("service.spec", "type", "externalTrafficPolicy", "internalTrafficPolicy", "ipFamilies", "ipFamilyPolicy", "loadBalancerClass",
		"allocateLoadBalancerNodePorts", "healthCheckNodePort", "sessionAffinity", "trafficDistribution",
		"ports.nodePort", "ports.$patch")
	add("deployment.spec", "replicas", "minReadySeconds", "progressDeadlineSeconds", "revisionHistoryLimit")
	add("deployment.spec.template.metadata", "labels", "annotations")
	add("deployment.spec.template.spec", "nodeSelector", "terminationGracePeriodSeconds", "resources.limits", "resources.requests")
	const container = "deployment.spec.template.spec.containers"
	add(container, "resizePolicy.resourceName", "resizePolicy.restartPolicy", "resources.limits", "resources.requests")
	for _, probe := range []string{"livenessProbe", "readinessProbe", "startupProbe"} {
		add(container, probe+"?")
		add(container+"."+probe, "httpGet?", "httpGet.path", "httpGet.port", "httpGet.scheme", "httpGet.httpHeaders.name", "httpGet.httpHeaders.value", "tcpSocket?",
			"tcpSocket.port", "grpc?", "grpc.port", "grpc.service", "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold", "terminationGracePeriodSeconds")
	}
	add("horizontalPodAutoscaler.spec", "minReplicas", "maxReplicas")
	add("podDisruptionBudget.spec", "minAvailable", "maxUnavailable", "unhealthyPodEvictionPolicy")
	for path, leaves := range subtrees() {
		for _, leaf := range leaves {
			at := path
			for _, name := range strings.Split(leaf, ".") {
				all = append(all, at+"?", at+".$patch")
				at += "." + name
			}
			all = append(all, at)
		}
	}
	return all
}

// subtrees lists the fields of objects that can also be null or replaced. An affinity must not select Pods of other namespaces, because
// they could not be scheduled to the nodes of such Pods.
func subtrees() map[string][]string {
	const required, preferred, pod = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution", "deployment.spec.template.spec."
	expressions := under("matchExpressions", "key", "operator", "values")
	selector := append(expressions, "matchLabels")
	nodes := slices.Concat(expressions, under("matchFields", "key", "operator", "values"))
	pods := append(under("labelSelector", selector...), "topologyKey", "matchLabelKeys", "mismatchLabelKeys")
	affinity := slices.Concat(under("nodeAffinity."+required+".nodeSelectorTerms", nodes...),
		under("nodeAffinity."+preferred, append(under("preference", nodes...), "weight")...))
	for _, kind := range []string{"podAffinity.", "podAntiAffinity."} {
		affinity = slices.Concat(affinity, under(kind+required, pods...), under(kind+preferred, append(under("podAffinityTerm", pods...), "weight")...))
	}
	target := under("target", "type", "value", "averageValue", "averageUtilization")
	metric := slices.Concat(target, under("metric", "name"), under("metric.selector", selector...))
	scaling := append(under("policies", "type", "value", "periodSeconds"), "stabilizationWindowSeconds", "selectPolicy", "tolerance")
	return map[string][]string{
		"service.spec.sessionAffinityConfig": {"clientIP.timeoutSeconds"},
		"deployment.spec.strategy":           {"$retainKeys", "type", "rollingUpdate.maxUnavailable", "rollingUpdate.maxSurge"},
		pod + "affinity":                     affinity,
		pod + "tolerations":                  {"key", "operator", "value", "effect", "tolerationSeconds"},
		pod + "topologySpreadConstraints": append(under("labelSelector", selector...),
			"maxSkew", "topologyKey", "whenUnsatisfiable", "minDomains", "nodeAffinityPolicy", "nodeTaintsPolicy", "matchLabelKeys"),
		"horizontalPodAutoscaler.spec.metrics": slices.Concat([]string{"type"},
			under("resource", append(target, "name")...), under("containerResource", append(target, "name", "container")...),
			under("pods", metric...), under("external", metric...),
			under("object", slices.Concat(metric, under("describedObject", "kind", "name", "apiVersion"))...)),
		"horizontalPodAutoscaler.spec.behavior": slices.Concat(under("scaleUp", scaling...), under("scaleDown", scaling...)),
	}
}

// under returns paths below a path.
func under(path string, names ...string) (all []string) {
	for _, name := range names {
		all = append(all, path+"."+name)
	}
	return all
}

// fields is the tree of the fields that an overlay may change.
type fields struct {
	// allowed reports whether the field and its content may change.
	allowed bool
	// unreserved reports whether the field has labels or annotations that may change, except reserved keys.
	unreserved bool
	// removable reports whether the field may be null.
	removable bool
	// list reports whether the field is a list. mergeKey is the field that identifies the elements of a list, or "".
	list     bool
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
		}
	}
	for _, path := range more {
		f, err := all.add(path)
		if errs = append(errs, err); err == nil {
			f.allowed = true
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
		if f.list = of.Kind() == reflect.Slice; f.list {
			of = of.Elem()
		}
		if strings.HasPrefix(name, "$") { // a directive of a strategic merge
			f = f.child(name)
			continue
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
	case f.allowed, f.removable && patch == nil:
		return ""
	case f.mergeKey != "":
		return f.rejectedElement(path, patch, document)
	}
	if elements, isList := patch.([]any); isList && f.list { // replaces the list
		for _, element := range elements {
			if at := f.rejected(path, element, nil); at != "" {
				return at
			}
		}
		return ""
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
	return name == tagging.Label || name == formerGatewayLabel ||
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
