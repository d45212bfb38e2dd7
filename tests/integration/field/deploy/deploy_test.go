package deploy

import (
	"maps"
	"reflect"
	"slices"
	"testing"

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
