package gatewaydeploy

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

func TestTemplatesThatRenderRubbish(t *testing.T) {
	good := embedded
	for name, c := range map[string]struct{ text, says string }{
		"text":                      {"rubbish", "no object"},
		"a list":                    {"- a\n- b", "no object"},
		"no YAML":                   {"a: [", "document 1: yaml: "},
		"a key twice":               {"a: 1\na: 2", "already set"},
		"nothing":                   {"# nothing", "no ServiceAccount"},
		"a separator with a text":   {good + "\n--- text\n", "separator"},
		"another kind":              {good + "\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: shop}", `document 4 is a "Secret"`},
		"a kind of another group":   {strings.Replace(good, "apps/v1", "example.com/v1", 1), "example.com/v1"},
		"one twice":                 {good + "\n---" + good, "second ServiceAccount"},
		"one missing":               {good[:strings.LastIndex(good, "---")], "no Deployment"},
		"another name":              {strings.ReplaceAll(good, "{{ .Name | quote }}", "kube-dns"), "kube-dns"},
		"another namespace":         {strings.ReplaceAll(good, "{{ .Namespace | quote }}", "kube-system"), "kube-system"},
		"a field that is misspelt":  {strings.Replace(good, "ipFamilyPolicy", "ipFamilyPolice", 1), "ipFamilyPolice"},
		"a field of another type":   {strings.Replace(good, "periodSeconds: 5", "periodSeconds: often", 1), "periodSeconds"},
		"a status":                  {good + "\nstatus: {replicas: 1}", "status"},
		"a value that there is not": {strings.Replace(good, ".ServiceType", ".Missing", 1), "Missing"},
		"labels that are none":      {"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: {{ .ServiceAccount | quote }}, namespace: {{ .Namespace | quote }}, labels: null}", "metadata.labels"},
		"a second one of no name":   {good + "\n---\napiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: shop}", "document 4 is a second Service"},
		"more than there can be":    {`{{ range 2000000 }}xxxxxxxxxxxxxxxx{{ end }}`, "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t)
			var err error
			if p.Template, err = ParseTemplate("ConfigMap s/t", c.text); err != nil {
				t.Fatal(err)
			}
			plan := p.plan()
			if plan.Problem == nil || plan.Problem.Reason != ReasonInvalidTemplate || !strings.Contains(plan.Problem.Message, c.says) {
				t.Fatalf("the plan is %+v, want %s with %q", plan, ReasonInvalidTemplate, c.says)
			}
			if !strings.Contains(plan.Problem.Message, "ConfigMap s/t") {
				t.Errorf("%q does not say which template", plan.Problem.Message)
			}
		})
	}
	for _, text := range []string{"", " \n", "{{ .Name", "{{ nosuch .Name }}"} {
		if _, err := ParseTemplate("ConfigMap s/t", text); err == nil || !strings.Contains(err.Error(), "ConfigMap s/t") {
			t.Errorf("template %q: %v", text, err)
		}
	}
	p := play(t)
	p.TemplateProblem = errors.New("it has no key")
	if plan := p.plan(); plan.Problem == nil || plan.Problem.Reason != ReasonInvalidTemplate {
		t.Errorf("without a template, the plan is %+v", plan)
	}
}

// What was wanted cannot be noted where there are no annotations but a null: that is said of this object alone.
func TestTemplatesWithANullForAnnotations(t *testing.T) {
	p := play(t)
	_, others, _ := strings.Cut(embedded, "\n---\n")
	var err error
	if p.Template, err = ParseTemplate("ConfigMap s/t", `apiVersion: v1
kind: ServiceAccount
metadata: {name: {{ .ServiceAccount | quote }}, namespace: {{ .Namespace | quote }}, labels: {}, annotations: null}
---
`+others); err != nil {
		t.Fatal(err)
	}
	steps := p.plan().Steps
	if len(steps) != len(Kinds) || steps[0].Action != Leave || steps[1].Action != Create || steps[0].Problem == nil ||
		steps[0].Problem.Reason != ReasonInvalidTemplate || !strings.HasPrefix(steps[0].Problem.Message, "ConfigMap s/t: the ServiceAccount: ") {
		t.Errorf("the steps are %+v", steps)
	}
}

func TestOverlays(t *testing.T) {
	refer := func(group, kind, name string) func(*gateway.Gateway) {
		return func(gw *gateway.Gateway) {
			gw.Spec.Infrastructure = &gateway.GatewayInfrastructure{ParametersRef: &gateway.LocalParametersReference{
				Group: gateway.Group(group), Kind: gateway.Kind(kind), Name: name,
			}}
		}
	}
	for name, c := range map[string]struct{ key, text, says string }{
		"adds a variable":               {"deployment", "spec: {template: {spec: {containers: [{name: istio-proxy, env: [{name: A, value: b}]}]}}}", ""},
		"sets replicas":                 {"deployment", "spec: {replicas: 3}", ""},
		"sets the Service's type":       {"service", "spec: {type: ClusterIP}", ""},
		"annotates the account":         {"serviceAccount", "metadata: {annotations: {a: b}}", ""},
		"deletes what the template has": {"service", "spec: {ipFamilyPolicy: null}", ""},
		"is empty":                      {"service", "", ""},
		"renames":                       {"service", "metadata: {name: kube-dns}", "metadata.name"},
		"moves":                         {"deployment", "metadata: {namespace: kube-system}", "metadata.namespace"},
		"gives it to another owner":     {"service", "metadata: {ownerReferences: [{apiVersion: v1, kind: Pod, name: a, uid: b}]}", "metadata.ownerReferences"},
		"takes the label away":          {"service", "metadata: {labels: {gateway.istio.io/managed: null}}", ManagedLabel},
		"takes all labels away":         {"service", "metadata: {labels: null}", ManagedLabel},
		"makes it another class's":      {"service", "metadata: {labels: {gateway.networking.k8s.io/gateway-class-name: b}}", ClassLabel},
		"makes it another Gateway's":    {"service", "metadata: {labels: {gateway.networking.k8s.io/gateway-name: b}}", GatewayLabel},
		"names a version":               {"service", `metadata: {resourceVersion: "1"}`, "metadata.resourceVersion"},
		"adds a finalizer":              {"service", "metadata: {finalizers: [example.com/f]}", "metadata.finalizers"},
		"makes it another kind":         {"service", "kind: Secret", "kind"},
		"writes the status":             {"service", "status: {loadBalancer: {}}", "status"},
		"is no YAML":                    {"service", "a: [", "key service: yaml: "},
		"is no object":                  {"service", "text", "key service"},
		"has a field that is misspelt":  {"deployment", "spec: {replicass: 3}", "replicass"},
		"has a key that means nothing":  {"deploymnet", "spec: {}", "deploymnet"},
		"has a directive that is none":  {"service", "spec: {$patch: nonsense}", "nonsense"},
		"has keys that are no values":   {"deployment", "spec: {template: {spec: {containers: [{name: {a: b}}, {name: {a: b}}]}}}", "cannot be merged"},
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t, refer("", "ConfigMap", "params"))
			plain := play(t).plan()
			p.configs["params"] = &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: "params", Namespace: "shop"}, Data: map[string]string{c.key: c.text},
			}
			plan := p.plan()
			if c.says != "" {
				if plan.Problem == nil || plan.Problem.Reason != ReasonInvalidParameters || !strings.Contains(plan.Problem.Message, c.says) ||
					!strings.Contains(plan.Problem.Message, "ConfigMap shop/params") {
					t.Errorf("the plan is %+v, want %s with %q", plan, ReasonInvalidParameters, c.says)
				}
				return
			}
			if plan.Problem != nil {
				t.Fatal(plan.Problem)
			}
			changed := 0
			for _, kind := range Kinds {
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
		"one that is missing": refer("", "ConfigMap", "params"),
		"a Secret":            refer("", "Secret", "params"),
		"another group":       refer("example.com", "ConfigMap", "params"),
	} {
		if plan := play(t, change).plan(); plan.Problem == nil || plan.Problem.Reason != ReasonInvalidParameters {
			t.Errorf("%s: the plan is %+v", name, plan)
		}
	}
}

// Parameters are of the core group's ConfigMaps, and of nothing else by their name.
func TestAGatewaysParametersAreAConfigMap(t *testing.T) {
	for _, ref := range []gateway.LocalParametersReference{
		{Group: "example.com", Kind: "ConfigMap", Name: "params"}, {Kind: "Secret", Name: "params"},
	} {
		p := play(t, func(gw *gateway.Gateway) {
			gw.Spec.Infrastructure = &gateway.GatewayInfrastructure{ParametersRef: &ref}
		}, annotated(versionAnnotation, "5"))
		p.configs["params"] = &corev1.ConfigMap{}
		if plan := p.plan(); plan.Problem == nil || plan.Problem.Reason != ReasonInvalidParameters || !strings.Contains(plan.Problem.Message, "only ConfigMaps of the core group") || plan.Version {
			t.Errorf("%+v: the plan is %+v", ref, plan)
		}
	}
}

func TestAGatewaysParametersWinOverItsClass(t *testing.T) {
	p := play(t, func(gw *gateway.Gateway) {
		gw.Spec.Infrastructure = &gateway.GatewayInfrastructure{ParametersRef: &gateway.LocalParametersReference{Kind: "ConfigMap", Name: "params"}}
	})
	p.Defaults = &corev1.ConfigMap{Data: map[string]string{"deployment": "spec: {replicas: 2, minReadySeconds: 3}"}}
	p.configs["params"] = &corev1.ConfigMap{Data: map[string]string{"deployment": "spec: {replicas: 5}"}}
	spec, _, _ := unstructured.NestedMap(p.plan().document(Deployment).Object, "spec")
	if spec["replicas"] != int64(5) || spec["minReadySeconds"] != int64(3) {
		t.Errorf("the spec is %v", spec)
	}
}

// Whatever an overlay and a template say, there is a plan or a problem, and no panic: anyone who may make a ConfigMap
// would end the control plane by that.
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
		for _, kind := range Kinds {
			p := play(t)
			p.Defaults = &corev1.ConfigMap{Data: map[string]string{known[kind].overlay: text}}
			if plan := p.plan(); plan.Problem == nil && len(plan.Steps) != len(Kinds) {
				t.Errorf("the plan is %+v", plan)
			}
		}
	})
}
