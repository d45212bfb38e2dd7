package gatewaydeploy

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

func TestDecide_Skipped(t *testing.T) {
	class := func(controller string) *gateway.GatewayClass {
		return &gateway.GatewayClass{Spec: gateway.GatewayClassSpec{ControllerName: gateway.GatewayController(controller)}}
	}
	hostname, ip := gateway.HostnameAddressType, gateway.IPAddressType
	address := func(of ...*gateway.AddressType) func(*gateway.Gateway) {
		return func(gw *gateway.Gateway) {
			for _, kind := range of {
				gw.Spec.Addresses = append(gw.Spec.Addresses, gateway.GatewaySpecAddress{Type: kind, Value: "192.0.2.1"})
			}
		}
	}
	other := func(gw *gateway.Gateway) { gw.Spec.GatewayClassName = "other" }
	for name, c := range map[string]struct {
		change  func(*gateway.Gateway)
		class   *gateway.GatewayClass
		others  bool
		foreign bool
		skipped bool
		version bool
	}{
		"default class without object":            {version: true},
		"our class":                               {change: other, class: class(reconcile.GatewayController), version: true},
		"missing class":                           {change: other, skipped: true},
		"a class of another controller":           {change: other, class: class("example.com/c"), skipped: true},
		"default class of another controller":     {class: class("example.com/c"), skipped: true},
		"another revision":                        {others: true, foreign: true},
		"being deleted":                           {change: func(gw *gateway.Gateway) { gw.DeletionTimestamp = &metav1.Time{} }, foreign: true},
		"an address without a type":               {change: address(nil), version: true},
		"an IP address":                           {change: address(&ip), version: true},
		"a host name":                             {change: address(&hostname), skipped: true},
		"two addresses":                           {change: address(&ip, &ip), skipped: true},
		"the controller version of an old istiod": {change: annotated(versionAnnotation, "1"), version: true},
		"class that is not accepted": {change: other, class: func() *gateway.GatewayClass {
			c := class(reconcile.GatewayController)
			c.Spec.ParametersRef = &gateway.ParametersReference{}
			return c
		}(), skipped: true},
		"our controller version":             {change: annotated(versionAnnotation, "5")},
		"a larger controller version":        {change: annotated(versionAnnotation, "6"), foreign: true},
		"an empty controller version":        {change: annotated(versionAnnotation, ""), foreign: true},
		"controller version is not a number": {change: annotated(versionAnnotation, "v5"), foreign: true},
	} {
		t.Run(name, func(t *testing.T) {
			var changes []func(*gateway.Gateway)
			if c.change != nil {
				changes = append(changes, c.change)
			}
			p := play(t, changes...)
			p.Class = c.class
			p.IsMine = func(metav1.ObjectMeta) bool { return !c.others }
			plan := p.plan()
			deployed := len(plan.Steps) == 3
			if plan.Problem != nil || plan.Foreign != c.foreign || deployed == (c.foreign || c.skipped) || !deployed && len(plan.Steps) > 0 {
				t.Errorf("the plan is %+v", plan)
			}
			if plan.Version != c.version {
				t.Errorf("the version is written: %v, want %v", plan.Version, c.version)
			}
		})
	}
}

func TestDecide_NewGateway(t *testing.T) {
	p := play(t)
	plan := p.plan()
	if got := plan.actions(); got != "create create create" {
		t.Fatalf("the plan for a new Gateway is %s", got)
	}
	for _, kind := range rendered {
		o := plan.document(kind)
		owners := o.GetOwnerReferences()
		if o.GetName() != "web-istio" || o.GetNamespace() != "shop" || o.GetResourceVersion() != "" {
			t.Errorf("the %s is %s/%s at %q", kind, o.GetNamespace(), o.GetName(), o.GetResourceVersion())
		}
		if len(owners) != 1 || owners[0].UID != "uid-1" || owners[0].Kind != "Gateway" || owners[0].APIVersion != "gateway.networking.k8s.io/v1" || owners[0].Controller != nil {
			t.Errorf("the owners of the %s are %+v", kind, owners)
		}
		for key, want := range map[string]string{ManagedLabel: ManagedBy, gateway.GatewayNameLabelKey: "web", gateway.GatewayClassNameLabelKey: "istio"} {
			if got := o.GetLabels()[key]; got != want {
				t.Errorf("label %s of the %s is %q, want %q", key, kind, got, want)
			}
		}
	}
	var deployment appsv1.Deployment
	harness.Must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(plan.document(Deployment).Object, &deployment))
	container := deployment.Spec.Template.Spec.Containers[0]
	if deployment.Spec.Template.Spec.ServiceAccountName != "web-istio" || container.Image != "auto" || strings.Join(container.Args, " ") != "--ports 8080" {
		t.Errorf("the Pods are %+v", deployment.Spec.Template.Spec)
	}
	if deployment.Spec.Replicas != nil {
		t.Error("replicas must not be set, because an autoscaler may set it")
	}
	for key, value := range deployment.Spec.Selector.MatchLabels {
		if deployment.Spec.Template.Labels[key] != value {
			t.Errorf("the selector has %s=%s, the Pods do not", key, value)
		}
	}
	if got := deployment.Spec.Template.Annotations["istio.io/rev"]; got != "canary" {
		t.Errorf("the Pods are of revision %q", got)
	}
}

// Each case lists the previous writes to the Service.
func TestDecide_ExistingObjects(t *testing.T) {
	type document = map[string]any
	ports := []any{map[string]any{"name": "mine", "port": int64(1), "protocol": "TCP"}}
	for name, c := range map[string]struct {
		// stored returns the writes, given the desired document.
		stored  func(want document) []write
		want    string
		version string // resourceVersion of an apply
	}{
		"as created": {func(w document) []write {
			return []write{{reconcile.GatewayController, false, w}}
		}, "leave", ""},
		"as applied": {func(w document) []write {
			return []write{{reconcile.GatewayController, true, w}}
		}, "leave", ""},
		"added fields of others": {func(w document) []write {
			more := edited(edited(w, "Local", "spec", "externalTrafficPolicy"), "b", "metadata", "annotations", "a")
			return []write{{reconcile.GatewayController, false, w}, {"kubectl-edit", false, more}}
		}, "leave", ""},
		"changed field of the create": {func(w document) []write {
			return []write{{reconcile.GatewayController, false, w}, {"kubectl-edit", false, edited(w, "NodePort", "spec", "type")}}
		}, "apply+claim", "42"},
		"changed field of the apply": {func(w document) []write {
			return []write{{reconcile.GatewayController, true, w}, {"kubectl-edit", false, edited(w, "NodePort", "spec", "type")}}
		}, "apply", "42"},
		"removed field": {func(w document) []write {
			less := runtime.DeepCopyJSON(w)
			unstructured.RemoveNestedField(less, "spec", "ipFamilyPolicy")
			return []write{{reconcile.GatewayController, true, w}, {"kubectl-edit", false, less}}
		}, "apply", "42"},
		"applied with more fields": {func(w document) []write {
			return []write{{reconcile.GatewayController, true, sealed(edited(w, "Local", "spec", "externalTrafficPolicy"))}}
		}, "apply", "42"},
		"removed port": {func(w document) []write {
			return []write{{reconcile.GatewayController, true, w}, {"kubectl-edit", false, edited(w, ports, "spec", "ports")}}
		}, "apply", "42"},
		"added port": {func(w document) []write {
			have, _, _ := unstructured.NestedSlice(w, "spec", "ports")
			return []write{{reconcile.GatewayController, true, w}, {"kubectl-edit", false, edited(w, append(have, ports...), "spec", "ports")}}
		}, "leave", ""},
		"applied by istiod": {func(w document) []write {
			plain := runtime.DeepCopyJSON(w)
			unstructured.RemoveNestedField(plain, "metadata", "annotations", appliedAnnotation)
			return []write{{reconcile.GatewayController, true, plain}}
		}, "apply", "42"},
		"with defaults of the API server": {func(w document) []write {
			full := edited(w, "None", "spec", "sessionAffinity")
			list, _, _ := unstructured.NestedSlice(full, "spec", "ports")
			for _, p := range list {
				if port, ok := p.(map[string]any); ok {
					port["nodePort"] = int64(30000)
				}
			}
			return []write{{reconcile.GatewayController, false, edited(full, list, "spec", "ports")}}
		}, "leave", ""},
		"without label": {func(w document) []write {
			plain := runtime.DeepCopyJSON(w)
			unstructured.RemoveNestedField(plain, "metadata", "labels")
			return []write{{"kubectl-create", false, plain}}
		}, "leave:NotManaged", ""},
		"of another Gateway": {func(w document) []write {
			return []write{{reconcile.GatewayController, false, ofGateway(w, "other", "uid-2")}}
		}, "leave:NameTaken", ""},
		"of a deleted Gateway of the same name": {func(w document) []write {
			return []write{{reconcile.GatewayController, true, sealed(ofGateway(w, "web", "uid-0"))}}
		}, "apply", "42"},
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t)
			p.put(Service, c.stored(p.plan().document(Service).Object)...)
			second := p.plan().Steps[1]
			if got := (plan{Steps: []step{second}}).actions(); got != c.want {
				t.Errorf("the Service is to %s, want %s", got, c.want)
			}
			o := unstructured.Unstructured{Object: second.Document}
			if got := o.GetResourceVersion(); got != c.version {
				t.Errorf("the document names version %q, want %q", got, c.version)
			}
		})
	}
}

func TestDecide_NothingAfterWrites(t *testing.T) {
	for name, change := range map[string]func(*gateway.Gateway){
		"plain":      func(*gateway.Gateway) {},
		"an address": func(gw *gateway.Gateway) { gw.Spec.Addresses = []gateway.GatewaySpecAddress{{Value: "192.0.2.7"}} },
		"many ports": func(gw *gateway.Gateway) {
			gw.Spec.Listeners = append(gw.Spec.Listeners, gateway.Listener{Name: "b.c", Port: 81})
		},
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
				t.Errorf("the plan after creates is %s", got)
			}
			for _, s := range p.plan().Steps {
				p.put(s.Kind, write{reconcile.GatewayController, true, s.Document})
			}
			if got := p.plan().actions(); got != "leave leave leave" {
				t.Errorf("the plan after applies is %s", got)
			}
		})
	}
}

// A ServiceAccount that the Gateway sets may belong to another owner.
func TestDecide_ChosenServiceAccount(t *testing.T) {
	for name, change := range map[string]func(document map[string]any) map[string]any{
		"without label": func(d map[string]any) map[string]any {
			unstructured.RemoveNestedField(d, "metadata", "labels")
			return d
		},
		"of another Gateway": func(d map[string]any) map[string]any {
			return ofGateway(d, "other", "uid-2")
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t, annotated(accountOverride, "shared"))
			p.put(ServiceAccount, write{"other", false, change(p.plan().document(ServiceAccount).Object)})
			if got := p.plan().actions(); got != "leave create create" {
				t.Errorf("the plan is %s", got)
			}
			p = play(t)
			p.put(ServiceAccount, write{"other", false, change(p.plan().document(ServiceAccount).Object)})
			// Otherwise the name of a Gateway would select the account of its Pods.
			steps := p.plan().Steps
			if steps[0].Problem == nil || steps[0].Action != actionLeave || steps[1].Action != actionCreate || steps[2].Action != actionLeave {
				t.Errorf("an account of the default name: %+v", steps)
			}
		})
	}
	// The chosen account does not affect the check of the Service.
	p := play(t, annotated(accountOverride, "sa"))
	p.objects["Service/web-istio"] = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-istio"}}
	p.objects["ServiceAccount/sa"] = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "sa"}}
	if got := p.plan().actions(); got != "leave leave:"+ReasonNotManaged+" create" {
		t.Errorf("the plan is %s", got)
	}
}

// Selectors are immutable, and istiod before 1.24 used another one.
func TestDecide_KeepsFormerSelector(t *testing.T) {
	p := play(t)
	former := map[string]any{formerGatewayLabel: "web"}
	want := p.plan().document(Deployment).Object
	old := edited(edited(want, former, "spec", "selector", "matchLabels"), "web", "spec", "template", "metadata", "labels", formerGatewayLabel)
	p.put(Deployment, write{reconcile.GatewayController, true, sealed(old)})
	step := p.plan().Steps[2]
	if step.Action != actionLeave || step.Problem != nil {
		t.Errorf("the Deployment is to %s: %v", step.Action, step.Problem)
	}
	selector, _, _ := unstructured.NestedStringMap(step.Document, "spec", "selector", "matchLabels")
	labels, _, _ := unstructured.NestedStringMap(step.Document, "spec", "template", "metadata", "labels")
	if len(selector) != 1 || selector[formerGatewayLabel] != "web" || labels[formerGatewayLabel] != "web" || labels[gateway.GatewayNameLabelKey] != "web" {
		t.Errorf("the selector is %v, the Pods have %v", selector, labels)
	}
}

func TestKeepSelector(t *testing.T) {
	document := map[string]any{"spec": map[string]any{"selector": "as wanted"}}
	keepSelector(&appsv1.Deployment{}, document)
	// Only the former selector is kept.
	keepSelector(&appsv1.Deployment{Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}}}, document)
	if text := fmt.Sprint(document); text != "map[spec:map[selector:as wanted]]" {
		t.Error(text)
	}
}

func TestDecide_DeletedObject(t *testing.T) {
	p := play(t)
	o := p.put(Service, write{reconcile.GatewayController, false, edited(p.plan().document(Service).Object, "NodePort", "spec", "type")})
	o.SetDeletionTimestamp(&metav1.Time{})
	if got := p.plan().actions(); got != "create leave create" {
		t.Errorf("the plan is %s", got)
	}
}

func TestDecide_InvalidManagedFields(t *testing.T) {
	p := play(t)
	o := p.put(Service, write{reconcile.GatewayController, true, sealed(edited(p.plan().document(Service).Object, "b", "metadata", "annotations", "a"))})
	fields := o.GetManagedFields()
	fields[0].FieldsV1 = metav1.NewFieldsV1(`{"f:spec":1}`)
	o.SetManagedFields(fields)
	step := p.plan().Steps[1]
	if step.Action != actionLeave || step.Problem == nil || step.Problem.Reason != reasonWriteFailed || !strings.Contains(step.Problem.Message, "read managedFields of Service shop/web-istio") {
		t.Errorf("%+v, %v", step, step.Problem)
	}
}

func TestRecord(t *testing.T) {
	p := problemf(ReasonNotManaged, "not managed")
	rejected := problemf(reasonWriteFailed, "quota: used 5")
	for name, c := range map[string]struct {
		before   string
		problems []*Problem
		want     string
	}{
		"none":             {"", []*Problem{nil}, ""},
		"end":              {"NotManaged: not managed", nil, ""},
		"two":              {"", []*Problem{nil, p, rejected}, "NotManaged: not managed\nWriteFailed: quota: used 5"},
		"rejected again":   {"WriteFailed: quota: used 4", []*Problem{rejected, p}, "WriteFailed: quota: used 4"},
		"rejected":         {"NotManaged: not managed", []*Problem{rejected}, "WriteFailed: quota: used 5"},
		"cut in character": {"", []*Problem{{Reason: "A", Message: strings.Repeat("a", maxProblem-4) + "ü"}}, "A: " + strings.Repeat("a", maxProblem-4)},
	} {
		gw := play(t, annotated(ProblemAnnotation, c.before)).Gateway
		got := record(gw, c.problems)
		if got != c.want {
			t.Errorf("%s: recorded %q, want %q", name, got, c.want)
		}
		gw.Annotations[ProblemAnnotation] = got
		if p := ProblemOf(gw); (p == nil) != (got == "") || p != nil && p.Error() != got {
			t.Errorf("%s: read %v", name, p)
		}
	}
}

// A Service that another client created for the Gateway keeps its type, unless the Gateway sets a type.
func TestDecide_KeepsServiceType(t *testing.T) {
	p := play(t)
	own := edited(p.plan().document(Service).Object, "NodePort", "spec", "type")
	unstructured.RemoveNestedField(own, "metadata", "annotations")
	p.put(Service, write{"kubectl", false, own})
	step := func() step { return p.plan().Steps[1] }
	first := step()
	if kind, set, _ := unstructured.NestedString(first.Document, "spec", "type"); first.Action != actionApply || set {
		t.Errorf("the Service is to %s with type %q", first.Action, kind)
	}
	p.put(Service, write{"kubectl", false, own}, write{reconcile.GatewayController, true, first.Document})
	if again := step(); again.Action != actionLeave || again.Problem != nil {
		t.Errorf("then it is to %s: %v", again.Action, again.Problem)
	}
	annotated(serviceTypeOverride, "LoadBalancer")(p.Gateway)
	if kind, _, _ := unstructured.NestedString(step().Document, "spec", "type"); kind != "LoadBalancer" {
		t.Errorf("with an annotation its type is %q", kind)
	}
	p.Gateway.Annotations = nil
	p.Defaults = &corev1.ConfigMap{Data: map[string]string{"service": "spec: {type: ClusterIP}"}}
	if kind, _, _ := unstructured.NestedString(step().Document, "spec", "type"); kind != "ClusterIP" {
		t.Errorf("with an overlay its type is %q", kind)
	}
}

// Config.Objects requests optional objects: a budget while the Gateway can have two Pods, and a policy for the ports of its Pods.
func TestDecide_Objects(t *testing.T) {
	const usual = "create create create create"
	overlay := func(data map[string]string) func(*played) {
		return func(p *played) { p.Defaults = &corev1.ConfigMap{Data: data} }
	}
	const one = `{"maxUnavailable":1,"selector":{"matchLabels":{"gateway.networking.k8s.io/gateway-name":"web"}},"unhealthyPodEvictionPolicy":"AlwaysAllow"}`
	for name, c := range map[string]struct {
		change  func(*played)
		actions string
		budget  string
	}{
		"one replica":  {func(*played) {}, usual, ""},
		"two replicas": {overlay(map[string]string{"deployment": "spec: {replicas: 2}"}), usual + " create", one},
		"scaled with kubectl": {func(p *played) {
			document := p.plan().document(Deployment).Object
			p.put(Deployment, write{reconcile.GatewayController, false, document}, write{"kubectl", false, edited(document, int64(3), "spec", "replicas")})
		}, "create create leave create create", one},
		"autoscaler":                {overlay(map[string]string{"horizontalPodAutoscaler": "spec: {maxReplicas: 2}"}), usual + " create create", one},
		"autoscaler of one replica": {overlay(map[string]string{"horizontalPodAutoscaler": "spec: {maxReplicas: 1}", "deployment": "spec: {replicas: 2}"}), usual + " create", ""},
		"overlay of one replica": {
			overlay(map[string]string{"podDisruptionBudget": "spec: {minAvailable: 1}"}), usual + " create",
			`{"minAvailable":1,"selector":{"matchLabels":{"gateway.networking.k8s.io/gateway-name":"web"}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t, func(gw *gateway.Gateway) {
				gw.Spec.Listeners = append(gw.Spec.Listeners, gateway.Listener{Name: "dns", Port: 53, Protocol: gateway.UDPProtocolType}, gateway.Listener{Name: "metrics", Port: 15090, Protocol: gateway.TCPProtocolType})
			})
			p.Objects = []Kind{Budget, Policy}
			c.change(p)
			plan := p.plan()
			if plan.actions() != c.actions || plan.Problem != nil {
				t.Fatalf("%s, %v", plan.actions(), plan.Problem)
			}
			want := map[Kind]string{Policy: `{"ingress":[{"ports":[{"port":15021,"protocol":"TCP"},{"port":8080,"protocol":"TCP"},{"port":53,"protocol":"UDP"},{"port":15090,"protocol":"TCP"},{"port":15020,"protocol":"TCP"}]}],` +
				`"podSelector":{"matchLabels":{"gateway.networking.k8s.io/gateway-name":"web"}},"policyTypes":["Ingress"]}`}
			if c.budget != "" {
				want[Budget] = c.budget
			}
			for kind, spec := range want {
				if got, _ := toJSON(plan.document(kind).Object["spec"]); got != spec {
					t.Errorf("%s: %s, want %s", kind, got, spec)
				}
			}
			p.settle()
			if now := p.plan(); strings.TrimSpace(strings.ReplaceAll(now.actions(), "leave", "")) != "" {
				t.Errorf("after the creates: %s", now.actions())
			}
			p.Objects = nil
			if now := p.plan(); !strings.HasSuffix(now.actions(), "delete") {
				t.Errorf("without the objects: %s", now.actions())
			}
		})
	}
}

// The overlay of a user cannot request a policy, which could allow traffic that the policies of an administrator do not.
func TestDecide_NoPolicyByOverlay(t *testing.T) {
	p := play(t)
	p.Defaults = &corev1.ConfigMap{Data: map[string]string{"networkPolicy": "spec: {}"}}
	if plan := p.plan(); plan.actions() != "create create create" || plan.Problem == nil || plan.Problem.Reason != ReasonUnknownParameter {
		t.Errorf("%s, %v", plan.actions(), plan.Problem)
	}
}
