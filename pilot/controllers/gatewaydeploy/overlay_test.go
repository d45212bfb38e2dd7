package gatewaydeploy

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

func TestOverlay(t *testing.T) {
	refer := func(group, kind, name string) func(*gateway.Gateway) {
		return func(gw *gateway.Gateway) {
			gw.Spec.Infrastructure = &gateway.GatewayInfrastructure{ParametersRef: &gateway.LocalParametersReference{
				Group: gateway.Group(group), Kind: gateway.Kind(kind), Name: name,
			}}
		}
	}
	for name, c := range map[string]struct{ key, text, problem string }{
		"sets resources":                         {"deployment", "spec: {template: {spec: {containers: [{name: istio-proxy, resources: {requests: {cpu: 50m}}}]}}}", ""},
		"annotates the account":                  {"serviceAccount", "metadata: {annotations: {a: b}}", ""},
		"deletes what the template has":          {"service", "spec: {ipFamilyPolicy: null}", ""},
		"is empty":                               {"service", "", ""},
		"removes the label":                      {"service", "metadata: {labels: {gateway.istio.io/managed: null}}", ManagedLabel},
		"removes all labels":                     {"service", "metadata: {labels: null}", ManagedLabel},
		"changes the class label":                {"service", "metadata: {labels: {gateway.networking.k8s.io/gateway-class-name: b}}", gateway.GatewayClassNameLabelKey},
		"changes the Gateway label":              {"service", "metadata: {labels: {gateway.networking.k8s.io/gateway-name: b}}", gateway.GatewayNameLabelKey},
		"is not YAML":                            {"service", "a: [", "key service: yaml: "},
		"is not an object":                       {"service", "text", "key service"},
		"has a misspelled field":                 {"deployment", "spec: {replicass: 3}", "replicass"},
		"has an invalid directive":               {"service", "spec: {$patch: nonsense}", "nonsense"},
		"has merge keys that are not comparable": {"deployment", "spec: {template: {spec: {containers: [{name: {a: b}}, {name: {a: b}}]}}}", "cannot merge"},
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t)
			plain := p.plan()
			p.Defaults = &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: "params", Namespace: "shop"}, Data: map[string]string{c.key: c.text},
			}
			plan := p.plan()
			if c.problem != "" {
				if plan.Problem == nil || plan.Problem.Reason != ReasonInvalidParameters || !strings.Contains(plan.Problem.Message, c.problem) ||
					!strings.Contains(plan.Problem.Message, "ConfigMap shop/params") {
					t.Errorf("the plan is %+v, want %s with %q", plan, ReasonInvalidParameters, c.problem)
				}
				return
			}
			if plan.Problem != nil {
				t.Fatal(plan.Problem)
			}
			changed := 0
			for _, kind := range rendered {
				before, _ := toJSON(plain.document(kind).Object)
				if after, _ := toJSON(plan.document(kind).Object); after != before {
					changed++
				}
			}
			if want := min(1, len(c.text)); changed != want {
				t.Errorf("the overlay changes %d objects, want %d", changed, want)
			}
		})
	}
	for name, change := range map[string]func(*gateway.Gateway){
		"missing ConfigMap": refer("", "ConfigMap", "params"),
		"Secret":            refer("", "Secret", "params"),
		"another group":     refer("example.com", "ConfigMap", "params"),
	} {
		if plan := play(t, change).plan(); plan.Problem == nil || plan.Problem.Reason != ReasonInvalidParameters || name != "missing ConfigMap" && !strings.Contains(plan.Problem.Message, "only ConfigMaps of the core group") {
			t.Errorf("%s: the plan is %+v", name, plan)
		}
	}
}

func TestOverlay_Identity(t *testing.T) {
	for path, value := range map[string]any{
		"apiVersion": "a/v1", "kind": "Secret", "status": map[string]any{"loadBalancer": map[string]any{}},
		"metadata.name": "a", "metadata.generateName": "a", "metadata.namespace": "a", "metadata.uid": "a",
		"metadata.resourceVersion": "1", "metadata.generation": int64(1), "metadata.selfLink": "a", "metadata.deletionGracePeriodSeconds": int64(1),
		"metadata.creationTimestamp": "2026-01-01T00:00:00Z", "metadata.deletionTimestamp": "2026-01-01T00:00:00Z",
		"metadata.ownerReferences": []any{}, "metadata.finalizers": []any{"example.com/a"}, "metadata.managedFields": []any{map[string]any{"manager": "a"}},
	} {
		text, err := toJSON(edited(map[string]any{}, value, strings.Split(path, ".")...))
		harness.Must(t, err)
		if path == "metadata.ownerReferences" {
			text = `{"metadata":{"ownerReferences":null}}`
		}
		p := play(t)
		p.Defaults = &corev1.ConfigMap{Data: map[string]string{"service": text}}
		plan := p.plan()
		if plan.Problem == nil || plan.Problem.Reason != ReasonInvalidParameters || !strings.Contains(plan.Problem.Message, "must not change "+path) {
			t.Errorf("%s: %+v", text, plan.Problem)
		}
	}
}

func TestOverlay_ParametersOverrideClass(t *testing.T) {
	p := play(t, parameters("params"))
	p.Defaults = &corev1.ConfigMap{Data: map[string]string{"deployment": "spec: {replicas: 2, minReadySeconds: 3}"}}
	p.configs["params"] = &corev1.ConfigMap{Data: map[string]string{"deployment": "spec: {replicas: 5}"}}
	spec, _, _ := unstructured.NestedMap(p.plan().document(Deployment).Object, "spec")
	if spec["replicas"] != int64(5) || spec["minReadySeconds"] != int64(3) {
		t.Errorf("the spec is %v", spec)
	}
}

func TestOwnedBy(t *testing.T) {
	gw := play(t).Gateway
	owners := func(of ...string) []metav1.OwnerReference {
		var all []metav1.OwnerReference
		for _, one := range of {
			kind, name, _ := strings.Cut(one, "/")
			all = append(all, metav1.OwnerReference{Kind: kind, Name: name})
		}
		return all
	}
	for name, c := range map[string]struct {
		label  string
		owners []metav1.OwnerReference
		want   bool
	}{
		"label":                     {label: "web", want: true},
		"other label":               {label: "other"},
		"label, other owner":        {label: "web", owners: owners("Gateway/other")},
		"owner, other label":        {label: "other", owners: owners("Gateway/web"), want: true},
		"owner":                     {owners: owners("Gateway/web"), want: true},
		"other owner":               {owners: owners("Gateway/other")},
		"other kind first":          {owners: owners("Pod/other", "Gateway/web"), want: true},
		"other kind, other Gateway": {owners: owners("Pod/web", "Gateway/other")},
		"neither":                   {want: true},
	} {
		o := &corev1.Service{ObjectMeta: metav1.ObjectMeta{OwnerReferences: c.owners}}
		if c.label != "" {
			o.Labels = map[string]string{gateway.GatewayNameLabelKey: c.label}
		}
		if got := ownedBy(o, gw); got != c.want {
			t.Errorf("%s: ownedBy is %v", name, got)
		}
	}
}

// No overlay may cause a panic, because any author of a ConfigMap could crash the control plane.
func FuzzOverlay(f *testing.F) {
	for _, text := range []string{
		"spec: {template: {spec: {containers: [{name: istio-proxy, env: [{name: A, value: b}]}]}}}",
		"spec: {template: {spec: {containers: [{name: {a: b}}, {name: {a: b}}]}}}",
		"spec: {template: {spec: {containers: [{$patch: replace}, {name: a}]}}}", "spec: {$retainKeys: [a], replicas: 1}",
		"spec: {template: {spec: {$setElementOrder/containers: [{name: a}], containers: []}}}", "$patch: delete",
		"metadata: {$deleteFromPrimitiveList/finalizers: [a]}", "spec: {ports: [{port: [1]}, {port: [1]}, null]}", "metadata: null", "spec: 1", "[]",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, kind := range rendered {
			p := play(t)
			p.Defaults = &corev1.ConfigMap{Data: map[string]string{kind.overlay(): text}}
			if plan := p.plan(); plan.Problem == nil && len(plan.Steps) != len(rendered) {
				t.Errorf("the plan is %+v", plan)
			}
		}
	})
}

// The cost of an overlay is bounded, because its author shares the controller with all namespaces.
func TestOverlay_Limits(t *testing.T) {
	env := func(n int) string {
		return "spec: {template: {spec: {containers: [{name: istio-proxy, env: [{name: a}" + strings.Repeat(", {name: a}", n-2) + "]}]}}}"
	}
	long := strings.Repeat("x", 1<<12)
	for name, c := range map[string]struct{ text, problem string }{
		"elements":          {env(maxElements), ""},
		"too many elements": {env(maxElements + 1), "257 list elements; at most 256 are allowed"},
		"nested lists":      {"a: [" + strings.Repeat("[1, 2, 3],", 64) + "1]", "257 list elements"},
		"aliases":           {"metadata: {annotations: {a: &a " + long + ", b: *a}}", ""},
		"alias of a text":   {"a: &a " + long + "\nb: [" + strings.Repeat("*a,", 64) + "]", "aliases expand the document to more than 131072 bytes"},
		"alias of aliases":  {"a: &a [x, y]\nb: &b [" + strings.Repeat("*a,", 200) + "]\nc: [" + strings.Repeat("*b,", 200) + "]", "aliases expand"},
		"alias of itself":   {"a: &a [*a]", "aliases expand"},
		"long problem":      {"spec: {" + strings.Repeat("a: b, ", 1000) + "}", "already set in map"},
	} {
		p := play(t, parameters("params"))
		p.configs["params"] = &corev1.ConfigMap{Data: map[string]string{"deployment": c.text}}
		p.Fields = nil // all
		switch plan := p.plan(); {
		case c.problem == "" && plan.Problem != nil:
			t.Errorf("%s: %v", name, plan.Problem)
		case c.problem == "":
		case plan.Problem == nil || plan.Problem.Reason != ReasonInvalidParameters || !strings.Contains(plan.Problem.Message, c.problem) || len(plan.Problem.Message) > 1024:
			t.Errorf("%s: problem %v, want %q", name, plan.Problem, c.problem)
		}
	}
}

// A parsed overlay serves many Gateways, whose merges must not change it.
func TestOverlay_Shared(t *testing.T) {
	configMap := &corev1.ConfigMap{Data: map[string]string{"deployment": "metadata: {annotations: {a: b}}\nspec: {$retainKeys: [selector, template], template: {spec: {containers: [{name: added, image: a}]}}}"}}
	shared, alone := overlayOf(configMap), overlayOf(configMap)
	for range 2 {
		p := play(t, parameters("params"))
		p.configs["params"] = configMap
		p.Fields = nil // all
		p.Overlay = func(*corev1.ConfigMap) overlay { return shared }
		if plan := p.plan(); plan.Problem != nil || plan.document(Deployment).GetAnnotations()["a"] != "b" {
			t.Fatalf("%+v", plan)
		}
		if !reflect.DeepEqual(shared.patches, alone.patches) {
			t.Fatalf("the overlay became %v, was %v", shared.patches, alone.patches)
		}
	}
}

// Unknown keys do not prevent the deployment, and the problem lists only a few of them.
func TestOverlay_UnknownKeys(t *testing.T) {
	p := play(t)
	p.Defaults = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "s"}, Data: map[string]string{"deployment": "spec: {replicas: 3}"}}
	for i := range 1000 {
		p.Defaults.Data[fmt.Sprintf("key-%03d\n", i)] = ""
	}
	plan := p.plan()
	want := `ConfigMap s/d: ignoring 1000 unknown keys, such as "key-000\n", "key-001\n", "key-002\n"; use serviceAccount, service, deployment, horizontalPodAutoscaler, podDisruptionBudget`
	if plan.actions() != "create create create" || plan.Problem == nil || plan.Problem.Reason != ReasonUnknownParameter || plan.Problem.Message != want {
		t.Errorf("%s, %v", plan.actions(), plan.Problem)
	}
	if replicas, _, _ := unstructured.NestedInt64(plan.document(Deployment).Object, "spec", "replicas"); replicas != 3 {
		t.Errorf("%d replicas", replicas)
	}
	p.Defaults.Data = map[string]string{"service": strings.Repeat("#", 1<<20)}
	if plan = p.plan(); plan.Problem == nil || plan.Problem.Reason != ReasonInvalidParameters || len(plan.Steps) > 0 || !strings.Contains(plan.Problem.Message, "at most 65536 bytes") {
		t.Errorf("%+v", plan)
	}
}

func TestOverlay_OptionalKinds(t *testing.T) {
	p := play(t, func(gw *gateway.Gateway) {
		gw.Spec.Infrastructure = &gateway.GatewayInfrastructure{Labels: map[gateway.LabelKey]gateway.LabelValue{"team": "a"}}
	})
	p.Defaults = &corev1.ConfigMap{Data: map[string]string{
		"horizontalPodAutoscaler": "spec: {minReplicas: 2, maxReplicas: 5}", "podDisruptionBudget": "spec: {minAvailable: 1}",
	}}
	plan := p.plan()
	if plan.actions() != "create create create create create" || plan.Problem != nil {
		t.Fatalf("%s, %v", plan.actions(), plan.Problem)
	}
	for kind, want := range map[Kind]string{
		Autoscaler: `{"maxReplicas":5,"minReplicas":2,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"web-istio"}}`,
		Budget:     `{"minAvailable":1,"selector":{"matchLabels":{"gateway.networking.k8s.io/gateway-name":"web"}}}`,
	} {
		o := plan.document(kind)
		if got, _ := toJSON(o.Object["spec"]); got != want || o.GetName() != "web-istio" || o.GetLabels()["team"] != "a" || len(o.GetOwnerReferences()) != 1 {
			t.Errorf("%s: %v", kind, o)
		}
	}
	p.settle()
	if got := p.plan().actions(); got != "leave leave leave leave leave" {
		t.Errorf("after the creates: %s", got)
	}
	p.Defaults.Data = map[string]string{"podDisruptionBudget": "spec: {minAvailable: 2}"}
	if got := p.plan().actions(); got != "leave leave leave apply+claim" {
		t.Errorf("without the autoscaler: %s", got)
	}
	p.Defaults.Data = nil
	if got := p.plan().actions(); got != "leave leave leave delete delete" {
		t.Errorf("without both: %s", got)
	}
}

// With an autoscaler, the controller writes replicas only while it owns them, and then the current number.
func TestOverlay_AutoscalerSetsReplicas(t *testing.T) {
	p := play(t)
	replicas := func(plan plan) any {
		value, _, _ := unstructured.NestedFieldNoCopy(plan.document(Deployment).Object, "spec", "replicas")
		return value
	}
	const autoscaler = "spec: {maxReplicas: 5}"
	p.Defaults = &corev1.ConfigMap{Data: map[string]string{"deployment": "spec: {replicas: 3}"}}
	p.settle()
	p.Defaults.Data["horizontalPodAutoscaler"] = autoscaler
	p.settle()
	plan := p.plan()
	if plan.actions() != "leave leave apply+claim leave" || replicas(plan) != int64(3) {
		t.Errorf("new autoscaler: %s, %v replicas", plan.actions(), replicas(plan))
	}
	written := plan.document(Deployment).Object
	p.put(Deployment, write{reconcile.GatewayController, true, written})
	if plan = p.plan(); plan.actions() != "leave leave leave leave" {
		t.Errorf("after the apply: %s", plan.actions())
	}
	p.put(Deployment, write{reconcile.GatewayController, true, written}, write{"autoscaler", false, edited(written, int64(4), "spec", "replicas")})
	if plan = p.plan(); plan.actions() != "leave leave leave leave" || replicas(plan) != nil {
		t.Errorf("scaled: %s, %v replicas", plan.actions(), replicas(plan))
	}
	delete(p.objects, "Deployment/web-istio")
	if plan = p.plan(); replicas(plan) != int64(3) {
		t.Errorf("new Deployment: %v replicas", replicas(plan))
	}
}
