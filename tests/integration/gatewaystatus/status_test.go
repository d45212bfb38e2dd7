package gatewaystatus

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/pilot/controllers/gatewaystatus"
)

const (
	listening = `{"gatewayClassName":"istio","listeners":[{"name":"http","port":80,"protocol":"HTTP"}]}`
	routing   = `{"parentRefs":[{"name":"gw"}],"rules":[{"backendRefs":[{"name":"backend","port":8080}]}]}`
)

// deploy creates the Deployment and the Service of a Gateway without a status.
func (c *cell) deploy(name string) (*appsv1.Deployment, *corev1.Service) {
	c.t.Helper()
	g := c.gateway(name)
	labels := map[string]string{gateway.GatewayNameLabelKey: name}
	meta := metav1.ObjectMeta{
		Name: name + "-istio", Labels: labels,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "gateway.networking.k8s.io/v1", Kind: "Gateway", Name: name, UID: g.UID}},
	}
	d, err := c.admin.Kube().AppsV1().Deployments(c.namespace).Create(c.t.Context(), &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}},
	}}, metav1.CreateOptions{})
	c.must(err)
	s, err := c.admin.Kube().CoreV1().Services(c.namespace).Create(c.t.Context(), &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}},
	}}, metav1.CreateOptions{})
	c.must(err)
	return d, s
}

func (c *cell) available(d *appsv1.Deployment, status corev1.ConditionStatus) {
	c.t.Helper()
	d.Status = appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1,
		Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: status}},
	}
	got, err := c.admin.Kube().AppsV1().Deployments(c.namespace).UpdateStatus(c.t.Context(), d, metav1.UpdateOptions{})
	c.must(err)
	*d = *got
}

func (c *cell) address(s *corev1.Service, ips ...string) {
	c.t.Helper()
	s.Status.LoadBalancer.Ingress = nil
	for _, ip := range ips {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	got, err := c.admin.Kube().CoreV1().Services(c.namespace).UpdateStatus(c.t.Context(), s, metav1.UpdateOptions{})
	c.must(err)
	*s = *got
}

func (c *cell) backend(name string) {
	c.t.Helper()
	_, err := c.admin.Kube().CoreV1().Services(c.namespace).Create(c.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 8080}}},
	}, metav1.CreateOptions{})
	c.must(err)
}

// The status follows the cluster until the Gateway is served, and back. Without changes nothing is written.
func TestStatus_FollowsCluster(t *testing.T) {
	c := newCell(t)
	c.start()
	c.awaitCondition("class", func() []metav1.Condition { // no revision is the default
		class, err := c.api.GatewayClasses().Get(t.Context(), "istio", metav1.GetOptions{})
		if err != nil || class.Spec.ControllerName != gatewaystatus.ControllerName {
			return nil
		}
		return class.Status.Conditions
	}, "Accepted", "True/Accepted")
	c.put("Gateway", "gw", listening)
	c.put("HTTPRoute", "route", routing)
	c.awaitCondition("gw", c.ofGateway("gw"), "Accepted", "True/Accepted")
	c.awaitCondition("gw", c.ofGateway("gw"), "Programmed", "False/Pending")
	c.awaitCondition("route", c.ofRoute("route", "gw"), "Accepted", "True/Accepted")
	c.awaitCondition("route", c.ofRoute("route", "gw"), "ResolvedRefs", "False/BackendNotFound")
	c.backend("backend")
	c.awaitCondition("route", c.ofRoute("route", "gw"), "ResolvedRefs", "True/ResolvedRefs")

	d, s := c.deploy("gw")
	c.available(d, corev1.ConditionTrue)
	c.awaitCondition("gw", c.ofGateway("gw"), "Programmed", "False/AddressNotAssigned")
	c.address(s, "127.0.0.9", "127.0.0.8")
	c.awaitCondition("gw", c.ofGateway("gw"), "Programmed", "True/Programmed")
	c.awaitCondition("gw", c.ofListener("gw"), "Programmed", "True/Programmed")
	g := c.gateway("gw")
	if len(g.Status.Addresses) != 2 || g.Status.Addresses[0].Value != "127.0.0.9" || g.Status.Listeners[0].AttachedRoutes != 1 {
		t.Errorf("addresses are %v, listeners %v", g.Status.Addresses, g.Status.Listeners)
	}

	// After a new generation, unchanged conditions keep their times.
	_, err := c.api.Gateways(c.namespace).Patch(t.Context(), "gw", types.MergePatchType, []byte(`{"spec":{"infrastructure":{"labels":{"a":"b"}}}}`), metav1.PatchOptions{})
	c.must(err)
	c.await("the generation is observed", func() bool {
		now := c.gateway("gw")
		for i, one := range now.Status.Conditions {
			if one.ObservedGeneration != now.Generation {
				return false
			}
			if !one.LastTransitionTime.Equal(&g.Status.Conditions[i].LastTransitionTime) {
				t.Fatalf("the time of %s has moved", one.Type)
			}
		}
		return now.Generation != g.Generation
	})
	c.quiet()

	c.available(d, corev1.ConditionFalse)
	c.awaitCondition("gw", c.ofGateway("gw"), "Programmed", "False/Pending")
	c.address(s)
	c.await("no address", func() bool { return len(c.gateway("gw").Status.Addresses) == 0 })
	c.must(c.api.HTTPRoutes(c.namespace).Delete(t.Context(), "route", metav1.DeleteOptions{}))
	c.await("no route", func() bool { return c.gateway("gw").Status.Listeners[0].AttachedRoutes == 0 })
	c.quiet()
}

// quiet checks that a restart and irrelevant changes cause no writes. All writes of a controller that has ended are recorded.
func (c *cell) quiet() {
	c.t.Helper()
	writes := func() int {
		c.end()
		return c.sent.Count("PATCH", "/gw/") + c.sent.Count("PATCH", "/route/")
	}
	before := writes()
	c.start()
	_, err := c.api.Gateways(c.namespace).Patch(c.t.Context(), "gw", types.MergePatchType, []byte(fmt.Sprintf(`{"metadata":{"annotations":{"a":"%d"}}}`, before)), metav1.PatchOptions{})
	c.must(err)
	_, err = c.admin.Kube().CoreV1().Namespaces().Patch(c.t.Context(), c.namespace, types.MergePatchType,
		[]byte(fmt.Sprintf(`{"metadata":{"labels":{"a":"%d"}}}`, before)), metav1.PatchOptions{})
	c.must(err)
	last := fmt.Sprint("last-", before)
	c.put("Gateway", last, listening)
	c.awaitCondition(last, c.ofGateway(last), "Accepted", "True/Accepted")
	if n := writes(); n != before {
		c.t.Errorf("%d unnecessary writes:\n%s", n-before, c.sent)
	}
	c.start()
}

// foreign returns an entry of another controller, with a time that a typed client does not preserve.
func foreign(i int) string {
	return fmt.Sprintf(`{"parentRef":{"name":"p%d","group":"gateway.networking.k8s.io","kind":"Gateway"},"controllerName":"example.com/c%d",`+
		`"conditions":[{"type":"Odd","status":"Unknown","reason":"R","message":"","lastTransitionTime":"2026-01-02T03:04:05.678Z"}]}`, i, i)
}

// setParents sets the entries of a route.
func (c *cell) setParents(name string, entries ...string) {
	c.t.Helper()
	_, err := c.api.HTTPRoutes(c.namespace).Patch(c.t.Context(), name, types.MergePatchType,
		[]byte(`{"status":{"parents":[`+strings.Join(entries, ",")+`]}}`), metav1.PatchOptions{}, "status")
	c.must(err)
}

// theirs returns the stored entries of other controllers.
func (c *cell) theirs(name string) []any {
	c.t.Helper()
	status, _ := c.stored("httproutes", name)["status"].(map[string]any)
	all, _ := status["parents"].([]any)
	var out []any
	for _, one := range all {
		if entry, _ := one.(map[string]any); entry["controllerName"] != string(gatewaystatus.ControllerName) {
			out = append(out, one)
		}
	}
	return out
}

func TestStatus_KeepsParentsOfOthers(t *testing.T) {
	c := newCell(t)
	c.start()
	c.put("Gateway", "gw", listening)
	c.put("Gateway", "second", listening)
	c.put("HTTPRoute", "route", routing)
	c.awaitCondition("route", c.ofRoute("route", "gw"), "Accepted", "True/Accepted")
	c.setParents("route", foreign(1), foreign(2)) // without our entry
	c.awaitCondition("route", c.ofRoute("route", "gw"), "ResolvedRefs", "False/BackendNotFound")
	var want []any
	c.must(json.Unmarshal([]byte("["+foreign(1)+","+foreign(2)+"]"), &want))
	same := func(step string) {
		t.Helper()
		if got := c.theirs("route"); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: entries of others are %v, want %v", step, got, want)
		}
	}
	same("entry added")
	c.backend("backend")
	c.awaitCondition("route", c.ofRoute("route", "gw"), "ResolvedRefs", "True/ResolvedRefs")
	same("entry changed")
	patch := func(spec string) {
		t.Helper()
		_, err := c.api.HTTPRoutes(c.namespace).Patch(t.Context(), "route", types.MergePatchType, []byte(spec), metav1.PatchOptions{})
		c.must(err)
	}
	patch(`{"spec":{"parentRefs":[{"name":"gw"},{"name":"second"}]}}`)
	c.awaitCondition("route", c.ofRoute("route", "second"), "Accepted", "True/Accepted")
	patch(`{"spec":{"parentRefs":[{"name":"second"}]}}`)
	c.await("one entry removed", func() bool { return c.ofRoute("route", "gw")() == nil })
	same("one entry removed")
	patch(`{"spec":{"parentRefs":[{"name":"elsewhere"}]}}`)
	c.await("entries removed", func() bool { return c.ofRoute("route", "second")() == nil })
	same("entries removed")
	if n := len(c.route("route").Status.Parents); n != 2 {
		t.Errorf("%d entries left", n)
	}
}
