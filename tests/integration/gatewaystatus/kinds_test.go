package gatewaystatus

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// The class is made when it is missing, also while one leads, and its status is written by the revision
// that has objects without a label. Classes of other controllers are left alone.
func TestTheClass(t *testing.T) {
	c := newCell(t)
	classes := c.api.GatewayClasses()
	remove := func() {
		t.Helper()
		if err := classes.Delete(t.Context(), "istio", metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	remove()
	for name, controller := range map[string]string{"theirs": "example.com/other", "further": "istio.io/gateway-controller"} {
		c.must(c.api.RESTClient().Post().Resource("gatewayclasses").SetHeader("Content-Type", "application/json").
			Body([]byte(`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"GatewayClass","metadata":{"name":"` + name + `"},"spec":{"controllerName":"` + controller + `"}}`)).
			Do(t.Context()).Error())
		t.Cleanup(func() { c.must(classes.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})) })
	}
	_, err := c.admin.Kube().CoreV1().Services(c.namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "tag", Labels: map[string]string{"istio.io/tag": "default", "istio.io/rev": c.namespace}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}},
	}, metav1.CreateOptions{})
	c.must(err)
	c.start()
	accepted := func(name string) func() []metav1.Condition {
		return func() []metav1.Condition {
			class, err := classes.Get(t.Context(), name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			c.must(err)
			return class.Status.Conditions
		}
	}
	c.says("istio", accepted("istio"), "Accepted", "True/Accepted")
	c.says("further", accepted("further"), "Accepted", "True/Accepted")
	remove()
	c.says("made again", accepted("istio"), "Accepted", "True/Accepted")
	class, err := classes.Get(t.Context(), "istio", metav1.GetOptions{})
	c.must(err)
	if len(class.Status.SupportedFeatures) == 0 {
		t.Error("no features")
	}
	_, err = classes.Patch(t.Context(), "istio", types.MergePatchType, []byte(`{"spec":{"description":"new"}}`), metav1.PatchOptions{})
	c.must(err)
	c.await("the generation is observed", func() bool {
		now, err := classes.Get(t.Context(), "istio", metav1.GetOptions{})
		c.must(err)
		return now.Generation != class.Generation && now.Status.Conditions[0].ObservedGeneration == now.Generation
	})
	if n := c.writes.count("/theirs"); n != 0 {
		t.Errorf("%d writes to another controller's class", n)
	}
	if got := accepted("theirs")(); len(got) != 1 || got[0].Reason != "Pending" {
		t.Errorf("theirs says %v", got)
	}
}

// A definition that is removed while one leads: it is said once, the other kinds go on, nothing is tried in a
// hot loop, and all goes on when it is back.
func TestADefinitionIsRemoved(t *testing.T) {
	c := newCell(t)
	c.start()
	c.put("Gateway", "gw", listening)
	c.put("HTTPRoute", "route", routing)
	c.says("route", c.ofRoute("route", "gw"), "Accepted", "True/Accepted")
	before := c.writes.count("/httproutes/")
	c.must(c.admin.Dynamic().Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}).
		Delete(t.Context(), "httproutes.gateway.networking.k8s.io", metav1.DeleteOptions{}))
	c.await("said so", func() bool {
		return strings.Contains(c.log.String(), "is not served by the API server") && strings.Contains(c.log.String(), "kind=httproutes")
	})
	c.put("Gateway", "second", listening)
	c.says("second", c.ofGateway("second"), "Accepted", "True/Accepted")
	c.backend("backend") // the route that the cache has is looked at, too
	c.settled()
	if n := c.writes.count("/httproutes/") - before; n > 2 {
		t.Errorf("%d writes of a kind that is not there: %q", n, c.writes.all)
	}
	c.must(c.c.LoadGatewayAPI(t.Context()))
	c.put("HTTPRoute", "route", routing)
	c.says("route", c.ofRoute("route", "gw"), "ResolvedRefs", "True/ResolvedRefs")
	if n := strings.Count(c.log.String(), "is not served by the API server"); n != 1 {
		t.Errorf("said %d times", n)
	}
}
