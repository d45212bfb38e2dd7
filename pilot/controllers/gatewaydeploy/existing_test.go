package gatewaydeploy

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// sealed is a document as if that had been wanted.
func sealed(document map[string]any) map[string]any {
	if err := seal(document); err != nil {
		panic(err)
	}
	return document
}

// The plan for what is there already, by who wrote which fields of it.
func TestWhatIsThereAlready(t *testing.T) {
	type document = map[string]any
	ports := []any{map[string]any{"name": "mine", "port": int64(1), "protocol": "TCP"}}
	for name, c := range map[string]struct {
		// stored is who wrote the Service, given what is wanted.
		stored func(want document) []write
		want   string
		by     string // the resourceVersion of an apply
	}{
		"as created": {func(w document) []write {
			return []write{{ControllerName, false, w}}
		}, "leave", ""},
		"as applied": {func(w document) []write {
			return []write{{ControllerName, true, w}}
		}, "leave", ""},
		"others have added fields": {func(w document) []write {
			more := edited(edited(w, "Local", "spec", "externalTrafficPolicy"), "b", "metadata", "annotations", "a")
			return []write{{ControllerName, false, w}, {"kubectl-edit", false, more}}
		}, "leave", ""},
		"somebody changed a field of ours": {func(w document) []write {
			return []write{{ControllerName, false, w}, {"kubectl-edit", false, edited(w, "NodePort", "spec", "type")}}
		}, "apply+claim", "42"},
		"somebody changed a field that we had applied": {func(w document) []write {
			return []write{{ControllerName, true, w}, {"kubectl-edit", false, edited(w, "NodePort", "spec", "type")}}
		}, "apply", "42"},
		"somebody took a field of ours away": {func(w document) []write {
			less := runtime.DeepCopyJSON(w)
			unstructured.RemoveNestedField(less, "spec", "ipFamilyPolicy")
			return []write{{ControllerName, true, w}, {"kubectl-edit", false, less}}
		}, "apply", "42"},
		"we had applied more": {func(w document) []write {
			return []write{{ControllerName, true, sealed(edited(w, "Local", "spec", "externalTrafficPolicy"))}}
		}, "apply", "42"},
		"we had created with more": {func(w document) []write {
			return []write{{ControllerName, false, sealed(edited(w, "Local", "spec", "externalTrafficPolicy"))}}
		}, "apply+claim", "42"},
		"we had applied other ports": {func(w document) []write {
			return []write{{ControllerName, true, sealed(edited(w, ports, "spec", "ports"))}}
		}, "apply", "42"},
		"somebody took a port of ours away": {func(w document) []write {
			return []write{{ControllerName, true, w}, {"kubectl-edit", false, edited(w, ports, "spec", "ports")}}
		}, "apply", "42"},
		"somebody added a port": {func(w document) []write {
			have, _, _ := unstructured.NestedSlice(w, "spec", "ports")
			return []write{{ControllerName, true, w}, {"kubectl-edit", false, edited(w, append(have, ports...), "spec", "ports")}}
		}, "leave", ""},
		"an istiod had applied": {func(w document) []write {
			plain := runtime.DeepCopyJSON(w)
			unstructured.RemoveNestedField(plain, "metadata", "annotations", appliedAnnotation)
			return []write{{ControllerName, true, plain}}
		}, "apply", "42"},
		"the API server has filled in the rest": {func(w document) []write {
			full := edited(w, "None", "spec", "sessionAffinity")
			list, _, _ := unstructured.NestedSlice(full, "spec", "ports")
			for _, p := range list {
				if port, ok := p.(map[string]any); ok {
					port["nodePort"] = int64(30000)
				}
			}
			return []write{{ControllerName, false, edited(full, list, "spec", "ports")}}
		}, "leave", ""},
		"without the label": {func(w document) []write {
			plain := runtime.DeepCopyJSON(w)
			unstructured.RemoveNestedField(plain, "metadata", "labels")
			return []write{{"kubectl-create", false, plain}}
		}, "leave:NotManaged", ""},
		"the label taken away": {func(w document) []write {
			plain := runtime.DeepCopyJSON(w)
			unstructured.RemoveNestedField(plain, "metadata", "labels", ManagedLabel)
			return []write{{ControllerName, false, w}, {"kubectl-edit", false, plain}}
		}, "leave:NotManaged", ""},
		"another Gateway's": {func(w document) []write {
			return []write{{ControllerName, false, edited(w, "other", "metadata", "labels", GatewayLabel)}}
		}, "leave:NameTaken", ""},
		"of a Gateway of the same name that was deleted": {func(w document) []write {
			old := runtime.DeepCopyJSON(w)
			o := unstructured.Unstructured{Object: old}
			o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "gateway.networking.k8s.io/v1", Kind: "Gateway", Name: "web", UID: "uid-0"}})
			return []write{{ControllerName, true, sealed(old)}}
		}, "apply", "42"},
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t)
			p.put(Service, c.stored(p.plan().document(Service).Object)...)
			step := p.plan().Steps[1]
			if got := (Plan{Steps: []Step{step}}).actions(); got != c.want {
				t.Errorf("the Service is to %s, want %s", got, c.want)
			}
			o := unstructured.Unstructured{Object: step.Document}
			if got := o.GetResourceVersion(); got != c.by {
				t.Errorf("the document names version %q, want %q", got, c.by)
			}
		})
	}
}

// What the plan says is done once it has been done, for any Gateway and overlay of these.
func TestAPlanThatWasCarriedOutLeavesNothingToDo(t *testing.T) {
	for name, change := range map[string]func(*gateway.Gateway){
		"plain":      func(*gateway.Gateway) {},
		"labels":     func(gw *gateway.Gateway) { gw.Labels = map[string]string{"a": "b"} },
		"an address": func(gw *gateway.Gateway) { gw.Spec.Addresses = []gateway.GatewaySpecAddress{{Value: "192.0.2.7"}} },
		"many ports": func(gw *gateway.Gateway) {
			gw.Spec.Listeners = append(gw.Spec.Listeners, gateway.Listener{Name: "b.c", Port: 81})
		},
		"no listeners":  func(gw *gateway.Gateway) { gw.Spec.Listeners = nil },
		"a chosen name": annotated(NameOverride, "edge"),
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t, change)
			p.Defaults = &corev1.ConfigMap{Data: map[string]string{
				"deployment": `{spec: {template: {spec: {containers: [{name: istio-proxy, resources: {requests: {cpu: 0.1, memory: 1024Mi}}, ports: [{containerPort: 9}]}]}}}}`,
				"service":    "{spec: {externalTrafficPolicy: Local, ports: [{port: 99, name: more}]}}",
			}}
			p.settle()
			if got := p.plan().actions(); got != "leave leave leave" {
				t.Errorf("after all was created the plan is %s", got)
			}
			for key, o := range p.objects {
				p.objects[key] = asApplied(o)
			}
			if got := p.plan().actions(); got != "leave leave leave" {
				t.Errorf("after all was applied the plan is %s", got)
			}
		})
	}
}

func TestAnAccountThatTheGatewayChoseMayBeAnothers(t *testing.T) {
	for name, change := range map[string]func(document map[string]any) map[string]any{
		"unlabelled": func(d map[string]any) map[string]any {
			unstructured.RemoveNestedField(d, "metadata", "labels")
			return d
		},
		"another Gateway's": func(d map[string]any) map[string]any { return edited(d, "other", "metadata", "labels", GatewayLabel) },
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t, annotated(accountOverride, "shared"))
			p.put(ServiceAccount, write{"somebody", false, change(p.plan().document(ServiceAccount).Object)})
			if got := p.plan().actions(); got != "leave create create" {
				t.Errorf("the plan is %s", got)
			}
			p = play(t)
			p.put(ServiceAccount, write{"somebody", false, change(p.plan().document(ServiceAccount).Object)})
			if step := p.plan().Steps[0]; step.Action != Leave || step.Problem == nil {
				t.Errorf("an account of the default name: %+v", step)
			}
		})
	}
}

// The selector of a Deployment cannot be changed, and istiod's was another one before 1.24.
func TestAFormerSelectorStays(t *testing.T) {
	p := play(t)
	former := map[string]any{formerGatewayLabel: "web"}
	want := p.plan().document(Deployment).Object
	old := edited(edited(want, former, "spec", "selector", "matchLabels"), "web", "spec", "template", "metadata", "labels", formerGatewayLabel)
	p.put(Deployment, write{ControllerName, true, sealed(old)})
	step := p.plan().Steps[2]
	if step.Action != Leave || step.Problem != nil {
		t.Errorf("the Deployment is to %s: %v", step.Action, step.Problem)
	}
	selector, _, _ := unstructured.NestedStringMap(step.Document, "spec", "selector", "matchLabels")
	labels, _, _ := unstructured.NestedStringMap(step.Document, "spec", "template", "metadata", "labels")
	if len(selector) != 1 || selector[formerGatewayLabel] != "web" || labels[formerGatewayLabel] != "web" || labels[GatewayLabel] != "web" {
		t.Errorf("the selector is %v, the Pods have %v", selector, labels)
	}
}

func TestAnObjectThatIsBeingDeletedIsLeftUntilItIsGone(t *testing.T) {
	p := play(t)
	o := p.put(Service, write{ControllerName, false, edited(p.plan().document(Service).Object, "NodePort", "spec", "type")})
	o.SetDeletionTimestamp(&metav1.Time{})
	if got := p.plan().actions(); got != "create leave create" {
		t.Errorf("the plan is %s", got)
	}
}
