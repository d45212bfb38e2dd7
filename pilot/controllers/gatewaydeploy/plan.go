package gatewaydeploy

import (
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// Action is what becomes of one object.
type Action string

// The actions.
const (
	// Leave: it is as wanted, or not ours to change.
	Leave Action = "leave"
	// Create: there is none. An apply in its place would take over one that somebody makes meanwhile.
	Create Action = "create"
	// Apply: it is ours and differs.
	Apply Action = "apply"
)

// Step is one object that a Gateway wants, and what to do about it.
type Step struct {
	Kind      Kind
	Namespace string
	Name      string
	Action    Action
	// Document is what is wanted. That of an Apply names the resourceVersion that was read.
	Document map[string]any
	// Claim: before an Apply, the fields of the create have to become those of an apply.
	Claim bool
	// Problem is why it is left although it is not as wanted; nil else.
	Problem *Problem

	read metav1.Object // that of its name, nil for none
}

// Plan is what is to be done for one Gateway.
type Plan struct {
	// Skipped says why nothing is: the Gateway is not ours to serve. "" if it is.
	Skipped string
	// Problem is why nothing can be done although it is ours; nil else.
	Problem *Problem
	// Version: our controller version has to be written onto the Gateway, before all else.
	Version bool
	// Steps are the objects, in the order of Kinds.
	Steps []Step
}

// View is what a plan is made of. Nothing in it is changed.
type View struct {
	Gateway *gateway.Gateway
	// Class is the Gateway's, nil when there is none of that name.
	Class *gateway.GatewayClass
	// IsMine tells whether an object belongs to this control plane's revision.
	IsMine func(metav1.ObjectMeta) bool
	// Template and TemplateProblem: the one in force, and why there is none.
	Template        *Template
	TemplateProblem error
	// Defaults is the overlay of the class, nil for none. Parameters finds one of the Gateway's namespace.
	Defaults   *corev1.ConfigMap
	Parameters func(name string) *corev1.ConfigMap
	// Existing finds an object of the Gateway's namespace, nil when there is none.
	Existing func(kind Kind, name string) metav1.Object
	// Image and Revision are for the template.
	Image, Revision string
}

// Decide says what to do for a Gateway.
func Decide(v View) Plan {
	if why := v.skipped(); why != "" {
		return Plan{Skipped: why}
	}
	_, version := takesPart(v.Gateway)
	steps, p := v.steps()
	if p != nil {
		// The version is ours to write as soon as we serve the Gateway, however well.
		return Plan{Version: version, Problem: p}
	}
	return Plan{Version: version, Steps: steps}
}

// skipped says why a Gateway is not ours to serve, "" if it is.
func (v View) skipped() string {
	gw := v.Gateway
	ours, _ := takesPart(gw)
	switch {
	case v.Class != nil && v.Class.Spec.ControllerName != ControllerName:
		return "its class is of another controller"
	case v.Class == nil && gw.Spec.GatewayClassName != DefaultClass:
		return "there is no class of that name"
	case gw.DeletionTimestamp != nil:
		return "it is being deleted"
	case !v.IsMine(gw.ObjectMeta):
		return "it is of another revision"
	case !managed(gw):
		return "its addresses are of a deployment that is not made here"
	case !ours:
		return "its controller version, " + gw.Annotations[versionAnnotation] + ", is not ours"
	}
	return ""
}

// steps renders what is wanted and compares it with what there is.
func (v View) steps() ([]Step, *Problem) {
	called := namesOf(v.Gateway)
	if p := called.problem(v.Gateway); p != nil {
		return nil, p
	}
	documents, p := v.documents(called)
	if p != nil {
		return nil, p
	}
	overlays, p := v.overlays()
	if p != nil {
		return nil, p
	}
	var steps []Step
	for _, kind := range Kinds {
		document := documents[kind]
		for _, overlay := range overlays {
			if document, p = overlay.onto(kind, document); p != nil {
				return nil, p
			}
		}
		steps = append(steps, v.step(kind, called, document))
	}
	return steps, nil
}

// documents are what the template says, one of each kind.
func (v View) documents(called names) (map[Kind]map[string]any, *Problem) {
	if v.TemplateProblem != nil {
		return nil, problemf(ReasonInvalidTemplate, "%v", v.TemplateProblem)
	}
	rendered, err := v.Template.render(v.values(called))
	if err != nil {
		return nil, problemf(ReasonInvalidTemplate, "%v", err)
	}
	wrong := func(format string, args ...any) (map[Kind]map[string]any, *Problem) {
		return nil, problemf(ReasonInvalidTemplate, v.Template.source+": "+format, args...)
	}
	documents := map[Kind]map[string]any{}
	for n, document := range rendered {
		object := unstructured.Unstructured{Object: document}
		kind := Kind(object.GetKind())
		about, ok := known[kind]
		switch {
		case !ok || object.GroupVersionKind() != about.gvk:
			return wrong("document %d is a %q of %q, only ServiceAccount, Service and Deployment are made", n+1, object.GetKind(), object.GetAPIVersion())
		case documents[kind] != nil:
			return wrong("document %d is a second %s", n+1, kind)
		case object.GetName() != called.of(kind) || object.GetNamespace() != v.Gateway.Namespace:
			return wrong("the %s is %s/%s and has to be %s/%s", kind, object.GetNamespace(), object.GetName(), v.Gateway.Namespace, called.of(kind))
		case identityChanged(map[string]any{}, map[string]any{"status": document["status"]}) != "":
			return wrong("the %s has a status", kind)
		}
		if _, err := kind.typed(document); err != nil {
			return wrong("the %s is none: %v", kind, err)
		}
		if err := identify(document, v.Gateway); err != nil {
			return wrong("the %s: %v", kind, err)
		}
		documents[kind] = document
	}
	for _, kind := range Kinds {
		if documents[kind] == nil {
			return wrong("there is no %s in it", kind)
		}
	}
	return documents, nil
}

func (n names) of(kind Kind) string {
	if kind == ServiceAccount {
		return n.account
	}
	return n.workload
}

// overlays are those of the class and of the Gateway, in the order in which they are merged.
func (v View) overlays() ([]Overlay, *Problem) {
	var found []Overlay
	if v.Defaults != nil {
		found = append(found, overlayOf(v.Defaults))
	}
	name, p := parametersOf(v.Gateway)
	if p != nil {
		return nil, p
	}
	if name != "" {
		configMap := v.Parameters(name)
		if configMap == nil {
			return nil, problemf(ReasonInvalidParameters, "spec.infrastructure.parametersRef names ConfigMap %s/%s, which does not exist", v.Gateway.Namespace, name)
		}
		found = append(found, overlayOf(configMap))
	}
	for _, overlay := range found {
		if p := overlay.check(); p != nil {
			return nil, p
		}
	}
	return found, nil
}

// values are what the template gets.
func (v View) values(called names) Values {
	gw := v.Gateway
	labels, annotations := infrastructure(gw)
	ports := portsOf(gw)
	var listen []string
	for _, port := range ports[1:] {
		listen = append(listen, strconv.Itoa(int(port.Port)))
	}
	serviceType := string(corev1.ServiceTypeLoadBalancer)
	if chosen := gw.Annotations[serviceTypeOverride]; chosen != "" {
		serviceType = chosen
	}
	address := ""
	if len(gw.Spec.Addresses) == 1 {
		address = gw.Spec.Addresses[0].Value
	}
	return Values{
		Gateway: gw.Name, Class: string(gw.Spec.GatewayClassName), Namespace: gw.Namespace, UID: string(gw.UID),
		Name: called.workload, ServiceAccount: called.account,
		Labels: labels, Annotations: annotations,
		PodLabels: map[string]string{
			"sidecar.istio.io/inject": "false",
			GatewayLabel:              gw.Name, ClassLabel: string(gw.Spec.GatewayClassName), ManagedLabel: ManagedBy,
		},
		PodAnnotations: map[string]string{"istio.io/rev": v.Revision},
		Selector:       map[string]string{GatewayLabel: gw.Name},
		Ports:          ports, Listen: strings.Join(listen, ","),
		ServiceType: serviceType, Address: address,
		Image: v.Image, Revision: v.Revision,
	}
}

// step compares one document with the object of its name.
func (v View) step(kind Kind, called names, document map[string]any) Step {
	s := Step{Kind: kind, Namespace: v.Gateway.Namespace, Name: called.of(kind), Action: Leave, Document: document}
	present := v.Existing(kind, s.Name)
	s.read = present
	if present != nil {
		keepSelector(present, document)
	}
	if err := seal(document); err != nil {
		s.Problem = problemf(ReasonInvalidTemplate, "%s: the %s: %v", v.Template.source, kind, err)
		return s
	}
	if present == nil {
		s.Action = Create
		return s
	}
	chosen := kind == ServiceAccount && called.chosenAccount // which may well be there already, and shared
	_, managed := present.GetLabels()[ManagedLabel]
	switch {
	case !managed && !chosen:
		s.Problem = problemf(ReasonNotManaged, "%s %s/%s was not made for a Gateway, it has no label %s: it stays as it is; rename or delete it, or choose a name with annotation %s",
			kind, s.Namespace, s.Name, ManagedLabel, NameOverride)
	case managed && !chosen && !ownedBy(present, v.Gateway):
		s.Problem = problemf(ReasonNameTaken, "%s %s/%s was made for Gateway %s: choose another name with annotation %s",
			kind, s.Namespace, s.Name, present.GetLabels()[GatewayLabel], NameOverride)
	}
	if s.Problem != nil || !managed || !ownedBy(present, v.Gateway) || present.GetDeletionTimestamp() != nil {
		return s
	}
	same, err := kind.asWanted(present, document)
	if err != nil {
		s.Problem = problemf(ReasonWriteFailed, "%v", err)
		return s
	}
	if !same {
		s.Action, s.Claim = Apply, created(present)
		object := unstructured.Unstructured{Object: document}
		object.SetResourceVersion(present.GetResourceVersion())
		object.SetUID(present.GetUID()) // else it would be made if it is gone by now
	}
	return s
}

// keepSelector keeps that of a Deployment made by an istiod before 1.24, since it cannot be changed.
func keepSelector(present metav1.Object, document map[string]any) {
	deployment, ok := present.(*appsv1.Deployment)
	if !ok || deployment.Spec.Selector == nil || !slices.Contains(selectorKeys(deployment), formerGatewayLabel) {
		return
	}
	labels := map[string]any{}
	for key, value := range deployment.Spec.Selector.MatchLabels {
		labels[key] = value
		_ = unstructured.SetNestedField(document, value, "spec", "template", "metadata", "labels", key) // it was typed
	}
	_ = unstructured.SetNestedMap(document, map[string]any{"matchLabels": labels}, "spec", "selector")
}

func selectorKeys(deployment *appsv1.Deployment) (keys []string) {
	for key := range deployment.Spec.Selector.MatchLabels {
		keys = append(keys, key)
	}
	return keys
}
