package gatewaydeploy

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

func TestTemplate_Invalid(t *testing.T) {
	good := embedded
	for name, c := range map[string]struct{ text, problem string }{
		"text":                       {"rubbish", "not an object"},
		"not YAML":                   {"a: [", "document 1: yaml: "},
		"a key twice":                {"a: 1\na: 2", "already set"},
		"nothing":                    {"# nothing", "ServiceAccount is missing"},
		"text after a separator":     {good + "\n--- text\n", "separator"},
		"another kind":               {good + "\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: shop}", `document 4 is a "Secret"`},
		"another API group":          {strings.Replace(good, "apps/v1", "example.com/v1", 1), "example.com/v1"},
		"duplicate kind":             {good + "\n---" + good, "second ServiceAccount"},
		"missing kind":               {good[:strings.LastIndex(good, "---")], "Deployment is missing"},
		"another name":               {strings.ReplaceAll(good, "{{ .Name | quote }}", "kube-dns"), "kube-dns"},
		"another namespace":          {strings.ReplaceAll(good, "{{ .Namespace | quote }}", "kube-system"), "kube-system"},
		"misspelled field":           {strings.Replace(good, "ipFamilyPolicy", "ipFamilyPolice", 1), "ipFamilyPolice"},
		"a field of another type":    {strings.Replace(good, "periodSeconds: 5", "periodSeconds: often", 1), "periodSeconds"},
		"a status":                   {good + "\nstatus: {replicas: 1}", "status"},
		"unknown value":              {strings.Replace(good, ".ServiceType", ".Missing", 1), "Missing"},
		"null labels":                {"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: {{ .ServiceAccount | quote }}, namespace: {{ .Namespace | quote }}, labels: null}", "metadata.labels"},
		"duplicate kind, other name": {good + "\n---\napiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: shop}", "document 4 is a second Service"},
		"output too long":            {`{{ range 10000 }}` + strings.Repeat("x", 200) + `{{ end }}`, "output exceeds"},
		"endless loop":               {`{{ range 1000000000000 }}{{ end }}`, errCost.Error()},
		"endless loop with continue": {`{{ range 1000000000000 }}{{ continue }}{{ end }}`, errCost.Error()},
		"nested loops":               {`{{ if true }}{{ range 1000000 }}{{ with 1 }}{{ range 1000000 }}{{ end }}{{ end }}{{ end }}{{ end }}`, errCost.Error()},
		"loop after else":            {`{{ if false }}{{ else }}{{ range 1000000000 }}{{ end }}{{ end }}`, errCost.Error()},
		"exponential recursion":      {`{{ define "a" }}{{ if . }}{{ template "a" (slice . 1) }}{{ template "a" (slice . 1) }}{{ end }}{{ end }}{{ template "a" "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" }}`, errCost.Error()},
		"doubled text":               {`{{ $x := "xxxxxxxx" }}{{ range 60 }}{{ $x = print $x $x }}{{ end }}`, errCost.Error()},
		"doubled quotes":             {`{{ $x := "\"\"" }}{{ range 60 }}{{ $x = toJson $x }}{{ end }}`, errCost.Error()},
		"doubled format":             {`{{ $x := "xxxxxxxx" }}{{ range 60 }}{{ $x = printf "%s%s" $x $x }}{{ end }}`, errCost.Error()},
		"wide text":                  {`{{ range 100000 }}{{ $x := printf "%900000d" 1 }}{{ end }}`, errCost.Error()},
		"long format":                {`{{ printf "` + strings.Repeat("%d", 101) + `" 1 }}`, "at most 100 verbs"},
		"refund":                     {`{{ range 10000000000 }}{{ ` + chargeFunction + ` -10 }}{{ end }}`, errCost.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t)
			var err error
			if p.Template, err = parseTemplate("ConfigMap s/t", c.text); err != nil {
				t.Fatal(err)
			}
			plan := p.plan()
			if plan.Problem == nil || plan.Problem.Reason != ReasonInvalidTemplate || !strings.Contains(plan.Problem.Message, c.problem) {
				t.Fatalf("the plan is %+v, want %s with %q", plan, ReasonInvalidTemplate, c.problem)
			}
			if !strings.Contains(plan.Problem.Message, "ConfigMap s/t") {
				t.Errorf("%q does not name the template", plan.Problem.Message)
			}
		})
	}
	for _, text := range []string{"", " \n", "{{ .Name", "{{ nosuch .Name }}"} {
		if _, err := parseTemplate("ConfigMap s/t", text); err == nil || !strings.Contains(err.Error(), "ConfigMap s/t") {
			t.Errorf("template %q: %v", text, err)
		}
	}
	p := play(t)
	p.TemplateProblem = errors.New("no key")
	if plan := p.plan(); plan.Problem == nil || plan.Problem.Reason != ReasonInvalidTemplate {
		t.Errorf("without a template, the plan is %+v", plan)
	}
}

// The digest cannot be written into null annotations. This affects only one object.
func TestTemplate_NullAnnotations(t *testing.T) {
	p := play(t)
	_, others, _ := strings.Cut(embedded, "\n---\n")
	var err error
	if p.Template, err = parseTemplate("ConfigMap s/t", `apiVersion: v1
kind: ServiceAccount
metadata: {name: {{ .ServiceAccount | quote }}, namespace: {{ .Namespace | quote }}, labels: {}, annotations: null}
---
`+others); err != nil {
		t.Fatal(err)
	}
	steps := p.plan().Steps
	if len(steps) != len(rendered) || steps[0].Action != actionLeave || steps[1].Action != actionCreate || steps[0].Problem == nil ||
		steps[0].Problem.Reason != ReasonInvalidTemplate || !strings.HasPrefix(steps[0].Problem.Message, "ConfigMap s/t: ServiceAccount: ") {
		t.Errorf("the steps are %+v", steps)
	}
}

func TestTemplate_PortsAndAddress(t *testing.T) {
	p := play(t, func(gw *gateway.Gateway) {
		gw.Spec.Addresses = []gateway.GatewaySpecAddress{{Value: "192.0.2.7"}}
		gw.Spec.Listeners = append(gw.Spec.Listeners, gateway.Listener{Name: "tls", Port: 8443, Protocol: gateway.TLSProtocolType},
			gateway.Listener{Name: "udp", Port: 8443, Protocol: gateway.UDPProtocolType})
	}, annotated(serviceTypeOverride, "NodePort"))
	plan := p.plan()
	spec, _, _ := unstructured.NestedMap(plan.document(Service).Object, "spec")
	port := func(name string, number int64, protocol, transport string) any {
		return map[string]any{"name": name, "port": number, "targetPort": number, "protocol": transport, "appProtocol": protocol}
	}
	want := map[string]any{
		"type": "NodePort", "loadBalancerIP": "192.0.2.7", "ipFamilyPolicy": "PreferDualStack",
		"selector": map[string]any{gateway.GatewayNameLabelKey: "web"},
		"ports":    []any{port("status-port", 15021, "tcp", "TCP"), port("http", 8080, "http", "TCP"), port("tls", 8443, "tls", "TCP"), port("udp", 8443, "udp", "UDP")},
	}
	if !reflect.DeepEqual(spec, want) {
		t.Errorf("the Service is\n%v, want\n%v", spec, want)
	}
	template, _, _ := unstructured.NestedMap(plan.document(Deployment).Object, "spec", "template")
	content, _ := toJSON(template)
	for _, part := range []string{
		`"args":["--ports","8080,8443"]`, `"sidecar.istio.io/inject":"false"`, `"gateway.networking.k8s.io/gateway-class-name":"istio"`,
		`"gateway.istio.io/managed":"istio.io-gateway-controller"`, `"serviceAccountName":"web-istio"`,
	} {
		if !strings.Contains(content, part) {
			t.Errorf("the Pods have no %s: %s", part, content)
		}
	}
	if plain := play(t).plan().document(Service).Object; plain["spec"].(map[string]any)["type"] != "LoadBalancer" || plain["spec"].(map[string]any)["loadBalancerIP"] != nil {
		t.Errorf("the Service of a plain Gateway is %v", plain["spec"])
	}
}

// All values are available, including values that the built-in template does not use.
func TestTemplate_Values(t *testing.T) {
	text := `metadata: {annotations: {all: {{ printf "%s %s %s %s %s %s %s %s %s %s" .Gateway .Class .Namespace .UID .Name .ServiceAccount .Image .Revision .ServiceType .Listen | quote }}}}`
	template, err := parseTemplate("a test", text)
	harness.Must(t, err)
	p := play(t, annotated(accountOverride, "sa"))
	documents, err := template.render(p.values(namesOf(p.Gateway)))
	if err != nil || len(documents) != 1 {
		t.Fatalf("%v, %v", documents, err)
	}
	o := unstructured.Unstructured{Object: documents[0]}
	if got, want := o.GetAnnotations()["all"], "web istio shop uid-1 web-istio sa auto canary LoadBalancer 8080"; got != want {
		t.Errorf("the values are %q, want %q", got, want)
	}
}
