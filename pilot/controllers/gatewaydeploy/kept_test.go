package gatewaydeploy

import (
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/pkg/kube"
)

// unstarted is a controller that nobody starts: it asks no API server.
func unstarted(t *testing.T, config Config) *Controller {
	t.Helper()
	client, err := kube.NewClient(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(client, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// meta has more than is kept.
func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: "uid", ResourceVersion: "3", Generation: 9, CreationTimestamp: metav1.Unix(100, 0),
		Labels: map[string]string{"istio.io/rev": "canary", "other": "label"}, Annotations: map[string]string{"an": "annotation"},
		ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: ControllerName, Operation: metav1.ManagedFieldsOperationApply},
			{Manager: ControllerName, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status"},
			{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate},
		},
	}
}

// slim is what is always kept of it.
func slim(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "uid", ResourceVersion: "3"}
}

func TestWhatIsKeptOfWhatIsRead(t *testing.T) {
	c := unstarted(t, Config{Namespace: "system"})
	labelled := slim("shop", "web")
	labelled.Labels, labelled.Annotations = meta("", "").Labels, meta("", "").Annotations
	spec := gateway.GatewaySpec{GatewayClassName: "a"}
	revision := slim("", "shop")
	revision.Labels = map[string]string{"istio.io/rev": "canary"}
	data := map[string]string{"deployment": "a", "service": "b", "serviceAccount": "c", TemplateKey: "d", "other": "e"}
	defaults, kept := meta("shop", "web"), slim("shop", "web")
	defaults.Labels = map[string]string{ClassDefaultsLabel: "istio", "other": "label"}
	kept.Labels, kept.CreationTimestamp = map[string]string{ClassDefaultsLabel: "istio"}, metav1.Unix(100, 0)
	overlays := map[string]string{"deployment": "a", "service": "b", "serviceAccount": "c", TemplateKey: "", "other": ""}
	for name, c := range map[string]struct{ got, want any }{
		"of a Gateway all but its status": {
			keepGateway(&gateway.Gateway{ObjectMeta: meta("shop", "web"), Spec: spec, Status: gateway.GatewayStatus{Conditions: []metav1.Condition{{Type: "a"}}}}),
			&gateway.Gateway{ObjectMeta: labelled, Spec: spec},
		},
		"of a class whose it is": {
			keepClass(&gateway.GatewayClass{ObjectMeta: meta("", "a"), Spec: gateway.GatewayClassSpec{ControllerName: "c", Description: new(string)}}),
			&gateway.GatewayClass{ObjectMeta: slim("", "a"), Spec: gateway.GatewayClassSpec{ControllerName: "c"}},
		},
		"of a namespace its revision": {
			keepNamespace(&corev1.Namespace{ObjectMeta: meta("", "shop"), Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"a"}}}),
			&corev1.Namespace{ObjectMeta: revision},
		},
		"of a ConfigMap what may be an overlay": {
			c.keepConfigMap(&corev1.ConfigMap{ObjectMeta: meta("shop", "web"), Data: data, BinaryData: map[string][]byte{"a": nil}}),
			&corev1.ConfigMap{ObjectMeta: slim("shop", "web"), Data: overlays},
		},
		"of the defaults of a class also which, and since when": {
			c.keepConfigMap(&corev1.ConfigMap{ObjectMeta: defaults, Data: data}), &corev1.ConfigMap{ObjectMeta: kept, Data: overlays},
		},
		"of the template all": {
			c.keepConfigMap(&corev1.ConfigMap{ObjectMeta: meta("system", DefaultTemplateName), Data: data}),
			&corev1.ConfigMap{ObjectMeta: slim("system", DefaultTemplateName), Data: data},
		},
		"of one called as the template, elsewhere": {
			c.keepConfigMap(&corev1.ConfigMap{ObjectMeta: meta("shop", DefaultTemplateName), Data: data}),
			&corev1.ConfigMap{ObjectMeta: slim("shop", DefaultTemplateName), Data: overlays},
		},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s is kept: it is\n%+v, want\n%+v", name, c.got, c.want)
		}
	}
}

func TestWhatIsKeptOfTheObjectsOfItsKinds(t *testing.T) {
	ours, others := meta("shop", "web"), meta("shop", "web")
	ours.Labels = map[string]string{ManagedLabel: "of an istiod"}
	keep := func(o *appsv1.Deployment) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: o.ObjectMeta, Spec: o.Spec}
	}
	deployment := func(meta metav1.ObjectMeta) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{MinReadySeconds: 3}, Status: appsv1.DeploymentStatus{Replicas: 2}}
	}
	want := deployment(*ours.DeepCopy())
	want.Status, want.ManagedFields = appsv1.DeploymentStatus{}, ours.ManagedFields[:1]
	if got := kept(Deployment, deployment(ours), keep); !reflect.DeepEqual(got, want) {
		t.Errorf("of ours is kept\n%+v, want\n%+v", got, want)
	}
	if got, want := kept(Deployment, deployment(others), keep), (&appsv1.Deployment{ObjectMeta: slim("shop", "web")}); !reflect.DeepEqual(got, want) {
		t.Errorf("of others' is kept\n%+v, want\n%+v", got, want)
	}
}

func TestTheTemplateIsTheConfigMapsWhileThereIsOne(t *testing.T) {
	c := unstarted(t, Config{Namespace: "system"})
	first, err := c.currentTemplate()
	again, _ := c.currentTemplate()
	if err != nil || first == nil || first.source != "the program's own template" || first != again {
		t.Errorf("without a ConfigMap the template is %+v, %v, then %+v", first, err, again)
	}
}

func TestTemplatesOfPortsAndAddresses(t *testing.T) {
	p := play(t, func(gw *gateway.Gateway) {
		gw.Spec.Addresses = []gateway.GatewaySpecAddress{{Value: "192.0.2.7"}}
		gw.Spec.Listeners = append(gw.Spec.Listeners, gateway.Listener{Name: "tls", Port: 8443, Protocol: gateway.TLSProtocolType})
	}, annotated(serviceTypeOverride, "NodePort"))
	plan := p.plan()
	spec, _, _ := unstructured.NestedMap(plan.document(Service).Object, "spec")
	port := func(name string, number int64, protocol string) any {
		return map[string]any{"name": name, "port": number, "targetPort": number, "protocol": "TCP", "appProtocol": protocol}
	}
	want := map[string]any{
		"type": "NodePort", "loadBalancerIP": "192.0.2.7", "ipFamilyPolicy": "PreferDualStack",
		"selector": map[string]any{GatewayLabel: "web"},
		"ports":    []any{port("status-port", 15021, "tcp"), port("http", 8080, "http"), port("tls", 8443, "tls")},
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

// A template gets what it may say: the values that the program's own one does not use, too.
func TestTemplatesGetAllValues(t *testing.T) {
	text := `metadata: {annotations: {all: {{ printf "%s %s %s %s %s %s %s %s %s %s" .Gateway .Class .Namespace .UID .Name .ServiceAccount .Image .Revision .ServiceType .Listen | quote }}}}`
	template, err := ParseTemplate("a test", text)
	if err != nil {
		t.Fatal(err)
	}
	p := play(t, annotated(accountOverride, "sa"))
	documents, err := template.render(p.values(namesOf(p.Gateway)))
	if err != nil || len(documents) != 1 {
		t.Fatalf("%v, %v", documents, err)
	}
	o := unstructured.Unstructured{Object: documents[0]}
	if got, want := o.GetAnnotations()["all"], "web istio shop uid-1 web-istio sa proxy canary LoadBalancer 8080"; got != want {
		t.Errorf("the values are %q, want %q", got, want)
	}
}

func TestTemplatesOfTheLargestSize(t *testing.T) {
	var out bounded
	if n, err := out.Write(make([]byte, maxRendered)); n != maxRendered || err != nil {
		t.Errorf("as much as there may be: %d, %v", n, err)
	}
	if _, err := out.Write([]byte{0}); err == nil || out.Len() != maxRendered {
		t.Errorf("one byte more: %v, and there are %d", err, out.Len())
	}
}
