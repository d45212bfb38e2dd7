package verdict

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/internal/tagging"
)

// inState returns a namespace with one object of each kind, all of them in their desired state.
func inState() *Objects {
	web := metav1.ObjectMeta{Namespace: "shop", Name: "web", Generation: 2}
	condition := func(name string) []metav1.Condition {
		return []metav1.Condition{{Type: "Other"}, {Type: name, Status: metav1.ConditionTrue, ObservedGeneration: 2}}
	}
	o := &Objects{
		Namespaces: &corev1.NamespaceList{Items: []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: home}}, {ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}},
		Bundles:    &corev1.ConfigMapList{Items: []corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}, Data: map[string]string{"pem": "right"}}}},
		Ingresses:  &networkingv1.IngressList{Items: []networkingv1.Ingress{{ObjectMeta: web}}},
		Gateways: &gateway.GatewayList{Items: []gateway.Gateway{{ObjectMeta: web, Status: gateway.GatewayStatus{
			Conditions: condition("Programmed"), Addresses: []gateway.GatewayStatusAddress{{Value: "192.0.2.1"}},
		}}}},
		Routes:      &gateway.HTTPRouteList{Items: []gateway.HTTPRoute{{ObjectMeta: web}}},
		Deployments: &appsv1.DeploymentList{Items: []appsv1.Deployment{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Labels: map[string]string{gateway.GatewayNameLabelKey: "web"}}}}},
	}
	o.Ingresses.Items[0].Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.9"}}
	o.Routes.Items[0].Spec.ParentRefs = []gateway.ParentReference{{Name: "web"}}
	o.Routes.Items[0].Status.Parents = []gateway.RouteParentStatus{{}, {Conditions: condition("Accepted")}}
	o.Deployments.Items[0].Spec.Template.Annotations = map[string]string{tagging.Label: "stable"}
	return o
}

func TestDifferences(t *testing.T) {
	stopped := metav1.Now()
	for name, test := range map[string]struct {
		change func(o *Objects)
		want   string
	}{
		"desired state":                {func(*Objects) {}, ""},
		"no bundle":                    {func(o *Objects) { o.Bundles.Items[0].Namespace = "other" }, "bundle shop/shop: it is missing"},
		"wrong bundle":                 {func(o *Objects) { o.Bundles.Items[0].Data["pem"] = "wrong" }, "it has other content"},
		"Ingress without address":      {func(o *Objects) { o.Ingresses.Items[0].Status.LoadBalancer.Ingress = nil }, "ingress shop/web: it has no address"},
		"Ingress with another address": {func(o *Objects) { o.Ingresses.Items[0].Status.LoadBalancer.Ingress[0].IP = "192.0.2.8" }, "it has another address"},
		"route not accepted": {func(o *Objects) { o.Routes.Items[0].Status.Parents[1].Conditions[1].Status = metav1.ConditionFalse },
			"route shop/web: it is not accepted"},
		"route of an old generation": {func(o *Objects) { o.Routes.Items[0].Generation = 3 }, "it is not accepted"},
		"not programmed": {func(o *Objects) { o.Gateways.Items[0].Status.Conditions[1].Status = metav1.ConditionUnknown },
			"gateway shop/web: it is not programmed"},
		"programmed in an old generation": {func(o *Objects) { o.Gateways.Items[0].Generation = 3 }, "it is not programmed"},
		"Gateway without address":         {func(o *Objects) { o.Gateways.Items[0].Status.Addresses = nil }, "it has no address"},
		"not deployed": {func(o *Objects) { o.Deployments.Items[0].Namespace = "other" },
			"gateway's deployment shop/web: it is missing"},
		"deployment of another Gateway": {func(o *Objects) { o.Deployments.Items[0].Labels[gateway.GatewayNameLabelKey] = "other" }, "it is missing"},
		"deployed by another revision": {func(o *Objects) { o.Deployments.Items[0].Spec.Template.Annotations[tagging.Label] = "canary" },
			`it is of revision "canary"`},
		"a revision of its own": {func(o *Objects) { o.Gateways.Items[0].Labels = map[string]string{tagging.Label: "canary"} }, `it is of revision "stable"`},
		"route without Gateway": {func(o *Objects) {
			o.Routes.Items[0].Spec.ParentRefs[0].Name = "other"
			o.Routes.Items[0].Status.Parents = nil
		}, ""},
		"Gateway in another namespace": {func(o *Objects) {
			o.Gateways.Items[0].Namespace = "other"
			o.Routes.Items[0].Status.Parents = nil
		}, ""},
		"no Gateways": {func(o *Objects) { o.Gateways, o.Routes = nil, nil }, ""},
		"terminating namespace": {func(o *Objects) {
			o.Namespaces.Items[1].DeletionTimestamp = &stopped
			o.Bundles.Items = nil
			o.Gateways.Items[0].Status.Addresses = nil
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := inState()
			test.change(o)
			w := Wanted{BundleKey: "pem", Bundle: "right", Excluded: []string{home}, IngressAddress: "192.0.2.9", DefaultRevision: "stable"}
			got := w.Differences(*o)
			if (len(got) == 0) != (test.want == "") || len(got) > 0 && (len(got) != 1 || got[0].Namespace != "shop" || !strings.Contains(got[0].Text, test.want)) {
				t.Errorf("want %q: %v", test.want, fmt.Sprint(got))
			}
		})
	}
}
