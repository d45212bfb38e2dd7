package deploy

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// An apply set labels its members, so the Gateway. The label is not copied, and a copied label is removed.
func TestMetadata_OfTools(t *testing.T) {
	f := newField(t)
	const set = "applyset.kubernetes.io/part-of"
	f.gateway("front", "istio", "labels: {"+set+": applyset-shop-v1, app: shop}, annotations: {argocd.argoproj.io/tracking-id: shop}", "infrastructure: {labels: {team: a}, annotations: {cost: b}}")
	f.exists("front-istio", workload...)
	want := []string{"gateway.istio.io/managed", "gateway.networking.k8s.io/gateway-class-name", "gateway.networking.k8s.io/gateway-name", "team"}
	for _, kind := range workload {
		o := f.get(kind, "front-istio")
		if got := slices.Sorted(maps.Keys(o.GetLabels())); !slices.Equal(got, want) || o.GetAnnotations()["cost"] != "b" || len(o.GetAnnotations()) != 2 {
			t.Errorf("%s has labels %q, annotations %v", kind, got, o.GetAnnotations())
		}
	}
	pods := func() any {
		template, _, _ := unstructured.NestedMap(f.get("Deployment", "front-istio").Object, "spec", "template")
		return template
	}
	before := pods()
	f.patch("Gateway", f.home, "front", `{"metadata":{"labels":{"app":"other"},"annotations":{"networking.istio.io/exportTo":"."}}}`)
	f.until("the annotation is copied", func() bool {
		return f.get("Deployment", "front-istio").GetAnnotations()["networking.istio.io/exportTo"] == "."
	})
	if after := pods(); !reflect.DeepEqual(after, before) {
		t.Errorf("the Pods were %v, are %v", before, after)
	}
}

// 03: Each problem of parameters is an Event and a condition, and ends.
func TestParameters_Missing(t *testing.T) {
	f := newField(t)
	f.gateway("lost", "istio", "", `infrastructure: {parametersRef: {group: "", kind: ConfigMap, name: params}}`)
	f.problem("lost", "InvalidParameters", "Accepted", "False", "InvalidParameters", "ConfigMap "+f.home+"/params of spec.infrastructure.parametersRef does not exist")
	f.apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: params}, data: {deployment: "spec: {replicas: [3"}}`)
	f.condition("lost", "Accepted", "False", "InvalidParameters", "key deployment: yaml: ")
	f.patch("ConfigMap", f.home, "params", `{"data":{"deployment":"spec: {replicas: 3}"}}`)
	f.condition("lost", "Accepted", "True", "Accepted", "")
	f.exists("lost-istio", workload...)
	if replicas, _, _ := unstructured.NestedInt64(f.get("Deployment", "lost-istio").Object, "spec", "replicas"); replicas != 3 {
		t.Errorf("%d replicas", replicas)
	}
	if value, recorded := f.get("Gateway", "lost").GetAnnotations()["incumbent.dev/deployment-problem"]; recorded {
		t.Errorf("the problem is still recorded: %s", value)
	}
}

// 05, 05b: Istio's autoscaler and budget are implemented. Unknown keys are reported once.
func TestParameters_OfIstio(t *testing.T) {
	f := newField(t)
	f.apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: defaults, namespace: ` + f.system + `, labels: {gateway.istio.io/defaults-for-class: istio}},
data: {podDisruptionBudget: "spec: {minAvailable: 1}"}}`)
	f.apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: sized}, data: {deployment: "spec: {replicas: 3}", horizontalPodAutoscaler: "spec: {minReplicas: 2, maxReplicas: 5}", typo: "a"}}`)
	f.gateway("sized", "istio", "", `infrastructure: {parametersRef: {group: "", kind: ConfigMap, name: sized}}`)
	f.exists("sized-istio", append(workload, "HorizontalPodAutoscaler", "PodDisruptionBudget")...)
	f.problem("sized", "UnknownParameter", "Accepted", "True", "Accepted", `ignoring 1 unknown keys, such as "typo"`)
	f.patch("Deployment", f.home, "sized-istio", `{"spec":{"replicas":4}}`)
	f.patch("ConfigMap", f.home, "sized", `{"data":{"horizontalPodAutoscaler":"spec: {minReplicas: 2, maxReplicas: 6}"}}`)
	f.until("the autoscaler is updated", func() bool {
		n, _, _ := unstructured.NestedInt64(f.get("HorizontalPodAutoscaler", "sized-istio").Object, "spec", "maxReplicas")
		return n == 6
	})
	if n, _, _ := unstructured.NestedInt64(f.get("Deployment", "sized-istio").Object, "spec", "replicas"); n != 4 {
		t.Errorf("%d replicas", n)
	}
	f.patch("ConfigMap", f.home, "sized", `{"data":{"horizontalPodAutoscaler":null}}`)
	f.gone("sized-istio", "HorizontalPodAutoscaler")
	f.exists("sized-istio", "PodDisruptionBudget")
}

// 07: Objects of a former name remain until the new ones serve. A manual deployment needs none.
func TestObsolete_Deleted(t *testing.T) {
	f := newField(t)
	f.gateway("by-hand", "istio", "", "")
	f.served("by-hand-istio")
	f.patch("Gateway", f.home, "by-hand", `{"metadata":{"annotations":{"gateway.istio.io/name-override":"edge"}}}`)
	f.exists("edge", "Service", "Deployment")
	f.condition("by-hand", "Programmed", "False", "Pending", "edge")
	if f.get("Deployment", "by-hand-istio") == nil || f.get("Service", "by-hand-istio") == nil {
		t.Error("a former object was deleted before the new objects serve")
	}
	f.patch("Deployment", f.home, "edge", `{"status":{"observedGeneration":1,"replicas":1,"updatedReplicas":1,"readyReplicas":1,"availableReplicas":1,"conditions":[{"type":"Available","status":"True"}]}}`, "status")
	f.patch("Service", f.home, "edge", `{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.2"}]}}}`, "status")
	f.gone("by-hand-istio", "Service", "Deployment")
	f.apply(`{apiVersion: v1, kind: Service, metadata: {name: other, labels: {gateway.networking.k8s.io/gateway-name: by-hand}}, spec: {ports: [{port: 80}]}}`)
	f.patch("Gateway", f.home, "by-hand", `{"spec":{"addresses":[{"type":"Hostname","value":"gateway.example"}]}}`)
	f.gone("edge", "Service", "Deployment")
	f.gone("by-hand-istio", "ServiceAccount")
	f.exists("other", "Service")
}

// 06: Long names and names with dots are deployed.
func TestNames_Long(t *testing.T) {
	f := newField(t)
	long := strings.Repeat("payments-", 10) + "gateway"
	for _, name := range []string{long, "shop.example.com"} {
		f.gateway(name, "istio", "", "")
		f.condition(name, "Programmed", "False", "Pending", "too few available pods")
	}
	f.gateway("invalid", "istio", "annotations: {gateway.istio.io/name-override: tür}", "")
	f.problem("invalid", "InvalidName", "Programmed", "False", "InvalidName", "tür")
}

// 28: A Service that was created in advance keeps its type.
func TestService_KeepsType(t *testing.T) {
	f := newField(t)
	f.apply(`{apiVersion: v1, kind: Service, metadata: {name: kept-istio, labels: {gateway.networking.k8s.io/gateway-name: kept, gateway.istio.io/managed: istio.io-gateway-controller}},
spec: {type: NodePort, externalTrafficPolicy: Local, ports: [{name: http, port: 80}]}}`)
	f.gateway("kept", "istio", "", "")
	f.until("the Service belongs to the Gateway", func() bool { return len(f.get("Service", "kept-istio").GetOwnerReferences()) == 1 })
	f.patch("Gateway", f.home, "kept", `{"spec":{"listeners":[{"name":"http","port":80,"protocol":"HTTP"},{"name":"more","port":81,"protocol":"HTTP"}]}}`)
	f.until("the Service has the new port", func() bool {
		ports, _, _ := unstructured.NestedSlice(f.get("Service", "kept-istio").Object, "spec", "ports")
		return len(ports) == 3
	})
	if kind, _, _ := unstructured.NestedString(f.get("Service", "kept-istio").Object, "spec", "type"); kind != "NodePort" {
		t.Errorf("type is %s", kind)
	}
}

// 33: A class that is not accepted does not serve.
func TestClass_NotAccepted(t *testing.T) {
	f := newField(t)
	f.apply(`{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: with-parameters},
spec: {controllerName: istio.io/gateway-controller, parametersRef: {group: "", kind: ConfigMap, name: nowhere, namespace: default}}}`)
	f.gateway("refused", "with-parameters", "", "")
	f.gateway("served", "istio", "", "")
	f.exists("served-istio", workload...)
	if f.get("Deployment", "refused-with-parameters") != nil {
		t.Error("a Gateway of a class that is not accepted is deployed")
	}
}

// An endless template blocks no worker, and the Gateway reports it.
func TestTemplate_Endless(t *testing.T) {
	f := newField(t)
	f.apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: istio-gateway-template, namespace: ` + f.system + `}, data: {template.yaml: "{{ range 1000000000000 }}{{ end }}"}}`)
	f.gateway("web", "istio", "", "")
	f.problem("web", "InvalidTemplate", "Programmed", "False", "InvalidTemplate", "limit of work")
	f.must(f.admin.Kube().CoreV1().ConfigMaps(f.system).Delete(t.Context(), "istio-gateway-template", metav1.DeleteOptions{}))
	f.exists("web-istio", workload...)
}

// Parameters of 1 MiB and a namespace that terminates do not affect other Gateways.
func TestInput_Bad(t *testing.T) {
	f := newField(t)
	f.apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: large}, data: {deployment: "` + strings.Repeat("#", 1<<20-100) + `"}}`)
	f.gateway("large", "istio", "", `infrastructure: {parametersRef: {group: "", kind: ConfigMap, name: large}}`)
	f.problem("large", "InvalidParameters", "Accepted", "False", "InvalidParameters", "at most 65536 are allowed")
	f.gateway("web", "istio", "", "")
	f.exists("web-istio", workload...)
	f.must(f.admin.Kube().CoreV1().Namespaces().Delete(t.Context(), f.home, metav1.DeleteOptions{}))
	f.must(f.admin.Kube().AppsV1().Deployments(f.home).Delete(t.Context(), "web-istio", metav1.DeleteOptions{}))
	f.home = f.cluster.Namespace(t)
	f.own(f.home, 1)
	f.gateway("next", "istio", "", "")
	f.exists("next-istio", workload...)
}
