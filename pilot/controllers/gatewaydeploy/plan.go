package gatewaydeploy

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

// action is the action for one object.
type action string

// The actions.
const (
	// actionLeave does nothing: the object is up to date or must not be changed.
	actionLeave action = "leave"
	// actionCreate creates a missing object. An apply would adopt an object that was created in between.
	actionCreate action = "create"
	// actionApply changes a managed object.
	actionApply action = "apply"
	// actionDelete deletes an obsolete object.
	actionDelete action = "delete"
)

// step is one object of a Gateway and its action.
type step struct {
	// Kind, Namespace and Name identify the object. Action changes it.
	Kind      Kind
	Namespace string
	Name      string
	Action    action
	// Document is the desired object. For Apply it includes the resourceVersion that was read. For Delete it is the patch to make first, or nil.
	Document map[string]any
	// Claim reports whether the fields of the create must be claimed before the Apply.
	Claim bool
	// Problem is the reason for Leave if the object is not as desired, or nil.
	Problem *Problem

	read metav1.Object // existing object, or nil
}

// plan lists the actions for one Gateway.
type plan struct {
	// Foreign reports whether another controller serves the Gateway or it is being deleted.
	Foreign bool
	// Problem is the reason why the Gateway cannot be deployed, or why the deployment ignores parameters, or
	// nil. In the first case there are no Steps.
	Problem *Problem
	// Version reports whether the controller version must be written to the Gateway first.
	Version bool
	// Steps lists the objects in the order of Kinds.
	Steps []step
}

// view is the input of decide, which does not modify it.
type view struct {
	// Gateway is the Gateway to deploy.
	Gateway *gateway.Gateway
	// Class is the class of the Gateway, or nil if it does not exist.
	Class *gateway.GatewayClass
	// IsMine reports whether an object belongs to the revision of this control plane.
	IsMine func(metav1.ObjectMeta) bool
	// Template is the current template, or nil with a TemplateProblem.
	Template        *workloadTemplate
	TemplateProblem error
	// Defaults is the ConfigMap with the overlay of the class, or nil.
	Defaults *corev1.ConfigMap
	// Parameters returns a ConfigMap of the Gateway's namespace, or nil.
	Parameters func(name string) *corev1.ConfigMap
	// overlay returns the parsed overlay of a ConfigMap.
	Overlay func(*corev1.ConfigMap) overlay
	// Existing returns an object of the Gateway's namespace, or nil.
	Existing func(kind Kind, name string) metav1.Object
	// Owned returns the managed objects whose owner is a Gateway of this name.
	Owned func(kind Kind) []metav1.Object
	// SameLabel lists the Gateways of the namespace whose names have the same label value, including this one.
	SameLabel []*gateway.Gateway
	// Shared reports whether another Gateway uses an object.
	Shared func(kind Kind, name string) bool
	// Objects lists optional kinds that the Gateway gets also without an overlay.
	Objects []Kind
	// Fields has the fields that the overlay of the Gateway may change.
	Fields *fields
	// Revision is a value for the template.
	Revision string
}

// decide returns the plan for a Gateway.
func decide(v view) plan {
	if v.foreign() {
		return plan{Foreign: true}
	}
	if !v.served() {
		return plan{Steps: v.abandoned()}
	}
	_, version := checkVersion(v.Gateway)
	// The version is written even if the Gateway cannot be deployed.
	steps, p := v.steps()
	return plan{Version: version, Problem: p, Steps: append(steps, v.obsolete(steps)...)}
}

// foreign reports whether no object of the Gateway may be written, because the Gateway is being deleted, belongs to another
// revision, or has a controller version with precedence.
func (v view) foreign() bool {
	ours, _ := checkVersion(v.Gateway)
	return v.Gateway.DeletionTimestamp != nil || !v.IsMine(v.Gateway.ObjectMeta) || !ours
}

// served reports whether the Gateway is deployed: its class belongs to this controller and is accepted, which excludes
// parameters, and its addresses do not refer to an existing deployment.
func (v view) served() bool {
	return Serves(v.Gateway, v.Class) && (v.Class == nil || v.Class.Spec.ParametersRef == nil) && managed(v.Gateway)
}

// Serves reports whether the class of a Gateway belongs to this controller. class is nil if it does not exist.
func Serves(gw *gateway.Gateway, class *gateway.GatewayClass) bool {
	if class == nil {
		return gw.Spec.GatewayClassName == reconcile.GatewayClass
	}
	return class.Spec.ControllerName == reconcile.GatewayController
}

// steps renders the desired objects and compares them with the existing ones. A problem without steps prevents
// the deployment.
func (v view) steps() ([]step, *Problem) {
	called := namesOf(v.Gateway)
	if p := cmp.Or(called.problem(), crowded(v.Gateway), v.labelTaken()); p != nil {
		return nil, p
	}
	overlays, p := v.overlays()
	if p != nil {
		return nil, p
	}
	documents, p := v.documents(called, overlays)
	if p != nil {
		return nil, p
	}
	var steps []step
	for _, kind := range Kinds {
		document := documents[kind]
		if document == nil {
			continue
		}
		for _, overlay := range overlays {
			if document, p = overlay.onto(kind, document); p != nil {
				return nil, p
			}
		}
		documents[kind] = document
		if !v.wanted(kind, called, documents, overlays) {
			continue
		}
		next := v.step(kind, called, document, documents[Autoscaler] != nil)
		if kind == Deployment && slices.ContainsFunc(steps, func(s step) bool { return s.Kind == ServiceAccount && s.Problem != nil }) {
			next.Action = actionLeave // its Pods would run as the account of another owner
		}
		steps = append(steps, next)
	}
	for _, overlay := range overlays {
		if p := overlay.check(); p != nil {
			return steps, p
		}
	}
	return steps, nil
}

// labelTaken returns a problem if an older Gateway has the label value of this Gateway's name, or nil. Selectors
// contain the label, so the Service of each would select the Pods of both.
func (v view) labelTaken() *Problem {
	for _, other := range v.SameLabel {
		if other.UID != v.Gateway.UID && cmp.Or(other.CreationTimestamp.Compare(v.Gateway.CreationTimestamp.Time), cmp.Compare(other.Name, v.Gateway.Name)) < 0 {
			return problemf(reasonNameTaken, "Gateway %s has the same value of label %s; create this Gateway with another name", other.Name, gateway.GatewayNameLabelKey)
		}
	}
	return nil
}

// documents renders the template, which must yield one object of each kind, and adds the kinds that an
// overlay requests.
func (v view) documents(called names, overlays []overlay) (map[Kind]map[string]any, *Problem) {
	if v.TemplateProblem != nil {
		return nil, problemf(ReasonInvalidTemplate, "%v", v.TemplateProblem)
	}
	values := v.values(called)
	all, err := v.Template.render(values)
	if err != nil {
		return nil, problemf(ReasonInvalidTemplate, "%v", err)
	}
	invalid := func(format string, args ...any) (map[Kind]map[string]any, *Problem) {
		return nil, problemf(ReasonInvalidTemplate, v.Template.source+": "+format, args...)
	}
	documents := map[Kind]map[string]any{}
	for n, document := range all {
		kind := Kind((&unstructured.Unstructured{Object: document}).GetKind())
		if documents[kind] != nil {
			return invalid("document %d is a second %s", n+1, kind)
		}
		if err := v.admit(kind, n+1, document, called); err != nil {
			return invalid("%v", err)
		}
		documents[kind] = document
	}
	for _, kind := range Kinds {
		requested := has(overlays, kind) || slices.Contains(v.Objects, kind)
		switch {
		case slices.Contains(rendered, kind):
			if documents[kind] == nil {
				return invalid("%s is missing", kind)
			}
		case requested:
			documents[kind] = optional(kind, values)
			if err := v.identify(documents[kind]); err != nil {
				return invalid("%s: %v", kind, err)
			}
		}
	}
	return documents, nil
}

func has(overlays []overlay, kind Kind) bool {
	return slices.ContainsFunc(overlays, func(o overlay) bool { return o.has(kind) })
}

// wanted completes the document of an optional kind that no overlay specifies, and reports whether the Gateway gets it. documents has the
// kinds before it with their overlays.
func (v view) wanted(kind Kind, called names, documents map[Kind]map[string]any, overlays []overlay) bool {
	spec, _, _ := unstructured.NestedMap(documents[kind], "spec")
	switch {
	case kind == Budget && !has(overlays, kind):
		spec["maxUnavailable"] = int64(1)
		spec["unhealthyPodEvictionPolicy"] = string(policyv1.AlwaysAllow)
		if v.replicas(called, documents) < 2 {
			return false
		}
	case kind == Policy:
		spec["podSelector"] = spec["selector"]
		delete(spec, "selector")
		spec["policyTypes"] = []any{string(networkingv1.PolicyTypeIngress)}
		spec["ingress"] = []any{map[string]any{"ports": openPorts(documents[Service])}}
	default:
		return true
	}
	documents[kind]["spec"] = spec
	return true
}

// replicas returns the number of replicas that a Gateway has, at most with an autoscaler.
func (v view) replicas(called names, documents map[Kind]map[string]any) int64 {
	if autoscaler := documents[Autoscaler]; autoscaler != nil {
		most, _, _ := unstructured.NestedInt64(autoscaler, "spec", "maxReplicas")
		return most
	}
	if set, found, _ := unstructured.NestedInt64(documents[Deployment], "spec", "replicas"); found {
		return set
	}
	if present, ok := v.Existing(Deployment, called.workload).(*appsv1.Deployment); ok && present.Spec.Replicas != nil {
		return int64(*present.Spec.Replicas)
	}
	return 1
}

// openPorts returns the ports of Pods to which a Service sends, and the ports of Istio's proxies with metrics.
func openPorts(service map[string]any) []any {
	var open []any
	ports, _, _ := unstructured.NestedSlice(service, "spec", "ports")
	for _, port := range append(ports, map[string]any{"port": int64(15020)}, map[string]any{"port": int64(15090)}) {
		of, _ := port.(map[string]any)
		one := map[string]any{"protocol": string(corev1.ProtocolTCP), "port": of["port"]}
		for from, to := range map[string]string{"targetPort": "port", "protocol": "protocol"} {
			if of[from] != nil {
				one[to] = of[from]
			}
		}
		if !slices.ContainsFunc(open, func(o any) bool { return reflect.DeepEqual(o, one) }) {
			open = append(open, one)
		}
	}
	return open
}

// admit checks the n-th document of the template, and adds the identity of the Gateway.
func (v view) admit(kind Kind, n int, document map[string]any, called names) error {
	object := unstructured.Unstructured{Object: document}
	switch {
	case !slices.Contains(rendered, kind) || object.GroupVersionKind() != kind.gvk():
		return fmt.Errorf("document %d is a %q of %q; only ServiceAccount, Service and Deployment are allowed", n, object.GetKind(), object.GetAPIVersion())
	case object.GetName() != called.of(kind) || object.GetNamespace() != v.Gateway.Namespace:
		return fmt.Errorf("%s is %s/%s, must be %s/%s", kind, object.GetNamespace(), object.GetName(), v.Gateway.Namespace, called.of(kind))
	case identityChanged(map[string]any{}, map[string]any{"status": document["status"]}) != "":
		return fmt.Errorf("%s must not have a status", kind)
	}
	if _, err := kind.typed(document); err != nil {
		return fmt.Errorf("invalid %s: %w", kind, err)
	}
	if err := v.identify(document); err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	return nil
}

// optional returns the object of a kind that the template does not have.
func optional(kind Kind, values values) map[string]any {
	spec := map[string]any{"selector": map[string]any{"matchLabels": anyMap(values.Selector)}}
	if kind == Autoscaler {
		spec = map[string]any{"scaleTargetRef": map[string]any{"apiVersion": appsv1.SchemeGroupVersion.String(), "kind": string(Deployment), "name": values.Name}}
	}
	return map[string]any{
		"apiVersion": versions[kind].String(), "kind": string(kind),
		"metadata": map[string]any{
			"name": values.Name, "namespace": values.Namespace, "labels": anyMap(values.Labels), "annotations": anyMap(values.Annotations),
		},
		"spec": spec,
	}
}

func anyMap(from map[string]string) map[string]any {
	to := make(map[string]any, len(from))
	for key, value := range from {
		to[key] = value
	}
	return to
}

func (n names) of(kind Kind) string {
	if kind == ServiceAccount {
		return n.account
	}
	return n.workload
}

// overlays returns the overlays of the class and of the Gateway in the order of merging.
func (v view) overlays() ([]overlay, *Problem) {
	var found []overlay
	if v.Defaults != nil {
		found = append(found, v.Overlay(v.Defaults))
	}
	name, p := parametersOf(v.Gateway)
	if p != nil {
		return nil, p
	}
	if name != "" {
		configMap := v.Parameters(name)
		if configMap == nil {
			return nil, problemf(ReasonInvalidParameters, "ConfigMap %s/%s of spec.infrastructure.parametersRef does not exist", v.Gateway.Namespace, name)
		}
		overlay := v.Overlay(configMap)
		overlay.fields = v.Fields
		found = append(found, overlay)
	}
	return found, nil
}

// values returns the values for the template.
func (v view) values(called names) values {
	gw := v.Gateway
	var in gateway.GatewayInfrastructure
	if gw.Spec.Infrastructure != nil {
		in = *gw.Spec.Infrastructure
	}
	labels, podLabels := metadata(gw.Labels, texts(in.Labels))
	annotations, podAnnotations := metadata(gw.Annotations, texts(in.Annotations))
	maps.Copy(podLabels, map[string]string{
		"sidecar.istio.io/inject":   "false",
		gateway.GatewayNameLabelKey: LabelValue(gw.Name), gateway.GatewayClassNameLabelKey: LabelValue(gw.Spec.GatewayClassName), ManagedLabel: ManagedBy,
	})
	podAnnotations[tagging.Label] = v.Revision
	ports := portsOf(gw)
	var listen []string
	for _, port := range ports[1:] {
		if number := strconv.Itoa(int(port.Port)); !slices.Contains(listen, number) {
			listen = append(listen, number)
		}
	}
	address := ""
	if len(gw.Spec.Addresses) == 1 {
		address = gw.Spec.Addresses[0].Value
	}
	return values{
		Gateway: gw.Name, Class: string(gw.Spec.GatewayClassName), Namespace: gw.Namespace, UID: string(gw.UID),
		Name: called.workload, ServiceAccount: called.account,
		Labels: labels, Annotations: annotations,
		PodLabels: podLabels, PodAnnotations: podAnnotations,
		Selector: map[string]string{gateway.GatewayNameLabelKey: LabelValue(gw.Name)},
		Ports:    ports, Listen: strings.Join(listen, ","),
		ServiceType: cmp.Or(gw.Annotations[serviceTypeOverride], string(corev1.ServiceTypeLoadBalancer)), Address: address,
		Image: proxyImage, Revision: v.Revision,
	}
}
