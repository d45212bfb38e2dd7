package gatewaystatus

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/pilot/controllers/gatewaystatus"
)

const (
	listening = `{"gatewayClassName":"istio","listeners":[{"name":"http","port":80,"protocol":"HTTP"}]}`
	routing   = `{"parentRefs":[{"name":"gw"}],"rules":[{"backendRefs":[{"name":"backend","port":8080}]}]}`
)

// deploy makes a Gateway's Deployment and Service, without a status.
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

// From an empty cluster to a Gateway that serves, and back; then there is nothing to write, and nothing is.
func TestStatusFollowsTheCluster(t *testing.T) {
	c := newCell(t)
	c.start()
	c.await("the class is made", func() bool {
		class, err := c.api.GatewayClasses().Get(t.Context(), "istio", metav1.GetOptions{})
		return err == nil && class.Spec.ControllerName == gatewaystatus.ControllerName
	})
	c.put("Gateway", "gw", listening)
	c.put("HTTPRoute", "route", routing)
	c.says("gw", c.ofGateway("gw"), "Accepted", "True/Accepted")
	c.says("gw", c.ofGateway("gw"), "Programmed", "False/Pending")
	c.says("route", c.ofRoute("route", "gw"), "Accepted", "True/Accepted")
	c.says("route", c.ofRoute("route", "gw"), "ResolvedRefs", "False/BackendNotFound")
	c.backend("backend")
	c.says("route", c.ofRoute("route", "gw"), "ResolvedRefs", "True/ResolvedRefs")

	d, s := c.deploy("gw")
	c.available(d, corev1.ConditionTrue)
	c.says("gw", c.ofGateway("gw"), "Programmed", "False/AddressNotAssigned")
	c.address(s, "127.0.0.9", "127.0.0.8")
	c.says("gw", c.ofGateway("gw"), "Programmed", "True/Programmed")
	c.says("gw", c.ofListener("gw"), "Programmed", "True/Programmed")
	g := c.gateway("gw")
	if len(g.Status.Addresses) != 2 || g.Status.Addresses[0].Value != "127.0.0.9" || g.Status.Listeners[0].AttachedRoutes != 1 {
		t.Errorf("addresses are %v, listeners %v", g.Status.Addresses, g.Status.Listeners)
	}

	// A new generation is observed; what has not changed keeps its time.
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
	c.says("gw", c.ofGateway("gw"), "Programmed", "False/Pending")
	c.address(s)
	c.await("no address", func() bool { return len(c.gateway("gw").Status.Addresses) == 0 })
	c.must(c.api.HTTPRoutes(c.namespace).Delete(t.Context(), "route", metav1.DeleteOptions{}))
	c.await("no route", func() bool { return c.gateway("gw").Status.Listeners[0].AttachedRoutes == 0 })
	c.quiet()
}

// quiet checks that nothing is written once all is well: not by changes that do not matter, nor by a
// controller that starts anew. What comes last is a change that is written, of an object made for it.
func (c *cell) quiet() {
	c.t.Helper()
	for i, restart := range []bool{false, true} {
		before, _ := c.settled()
		if restart {
			c.end()
			c.start()
		}
		_, err := c.api.Gateways(c.namespace).Patch(c.t.Context(), "gw", types.MergePatchType,
			[]byte(fmt.Sprintf(`{"metadata":{"annotations":{"a":"%d"}}}`, i)), metav1.PatchOptions{})
		c.must(err)
		_, err = c.admin.Kube().CoreV1().Namespaces().Patch(c.t.Context(), c.namespace, types.MergePatchType,
			[]byte(fmt.Sprintf(`{"metadata":{"labels":{"a":"%d"}}}`, i)), metav1.PatchOptions{})
		c.must(err)
		last := fmt.Sprintf("last-%d-%d", i, before)
		c.put("Gateway", last, listening)
		c.says(last, c.ofGateway(last), "Accepted", "True/Accepted")
		c.await("the last write was noted", func() bool { return c.writes.count(last) > 0 })
		if n := c.writes.count("/gw/") + c.writes.count("/route/"); n != before {
			c.t.Errorf("%d needless writes (restarted: %v): %q", n-before, restart, c.writes.all)
		}
	}
}

// settled is how many writes there were of the objects gw and route, once a further one was made and noted.
func (c *cell) settled() (n, all int) {
	c.t.Helper()
	name := fmt.Sprintf("settle-%d", c.writes.count())
	c.put("Gateway", name, listening)
	c.says(name, c.ofGateway(name), "Accepted", "True/Accepted")
	c.await("noted", func() bool { return c.writes.count(name) > 0 })
	return c.writes.count("/gw/") + c.writes.count("/route/"), c.writes.count()
}

// foreign is an entry of another controller, with what a typed client would not keep.
func foreign(i int) string {
	return fmt.Sprintf(`{"parentRef":{"name":"p%d","group":"gateway.networking.k8s.io","kind":"Gateway"},"controllerName":"example.com/c%d",`+
		`"conditions":[{"type":"Odd","status":"Unknown","reason":"R","message":"","lastTransitionTime":"2026-01-02T03:04:05.678Z"}]}`, i, i)
}

// setParents gives a route these entries.
func (c *cell) setParents(name string, entries ...string) {
	c.t.Helper()
	_, err := c.api.HTTPRoutes(c.namespace).Patch(c.t.Context(), name, types.MergePatchType,
		[]byte(`{"status":{"parents":[`+strings.Join(entries, ",")+`]}}`), metav1.PatchOptions{}, "status")
	c.must(err)
}

// theirs are the stored entries of other controllers, in their order.
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

func TestOthersParentsStay(t *testing.T) {
	c := newCell(t)
	c.start()
	c.put("Gateway", "gw", listening)
	c.put("Gateway", "second", listening)
	c.put("HTTPRoute", "route", routing)
	c.says("route", c.ofRoute("route", "gw"), "Accepted", "True/Accepted")
	c.setParents("route", foreign(1), foreign(2)) // and without ours
	c.says("route", c.ofRoute("route", "gw"), "ResolvedRefs", "False/BackendNotFound")
	var want []any
	c.must(json.Unmarshal([]byte("["+foreign(1)+","+foreign(2)+"]"), &want))
	same := func(step string) {
		t.Helper()
		if got := c.theirs("route"); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: theirs are %v, want %v", step, got, want)
		}
	}
	same("ours beside theirs")
	c.backend("backend")
	c.says("route", c.ofRoute("route", "gw"), "ResolvedRefs", "True/ResolvedRefs")
	same("ours has changed")
	patch := func(spec string) {
		t.Helper()
		_, err := c.api.HTTPRoutes(c.namespace).Patch(t.Context(), "route", types.MergePatchType, []byte(spec), metav1.PatchOptions{})
		c.must(err)
	}
	patch(`{"spec":{"parentRefs":[{"name":"gw"},{"name":"second"}]}}`)
	c.says("route", c.ofRoute("route", "second"), "Accepted", "True/Accepted")
	patch(`{"spec":{"parentRefs":[{"name":"second"}]}}`)
	c.await("one of ours is gone", func() bool { return c.ofRoute("route", "gw")() == nil })
	same("one of ours is gone")
	patch(`{"spec":{"parentRefs":[{"name":"elsewhere"}]}}`)
	c.await("ours are gone", func() bool { return c.ofRoute("route", "second")() == nil })
	same("ours are gone")
	if n := len(c.route("route").Status.Parents); n != 2 {
		t.Errorf("%d entries are left", n)
	}
}

// A route whose status is full of others' entries gets ours as soon as there is room; until then it is said once,
// nothing is removed and nothing is tried again and again.
func TestARouteWith32Parents(t *testing.T) {
	c := newCell(t)
	c.put("HTTPRoute", "route", routing)
	var full []string
	for i := range 32 {
		full = append(full, foreign(i))
	}
	c.setParents("route", full...)
	before := c.theirs("route")
	c.put("Gateway", "gw", listening)
	c.start()
	c.says("gw", c.ofGateway("gw"), "Accepted", "True/Accepted")
	c.await("said so", func() bool { return strings.Contains(c.log.String(), "entries of other controllers") })
	c.backend("backend") // another look at it
	c.settled()
	if got := c.theirs("route"); !reflect.DeepEqual(got, before) || len(got) != 32 {
		t.Errorf("theirs have changed: %d", len(got))
	}
	if n, said := c.writes.count("/route/"), strings.Count(c.log.String(), "entries of other controllers"); n != 0 || said != 1 {
		t.Errorf("%d writes, said %d times", n, said)
	}
	if said := c.events.of("HTTPRoute route Warning StatusFull true: "); len(said) != 1 {
		t.Errorf("the Events are %q", c.events.of(""))
	}
	c.setParents("route", full[:31]...)
	c.says("route", c.ofRoute("route", "gw"), "Accepted", "True/Accepted")
	if got := c.theirs("route"); !reflect.DeepEqual(got, before[:31]) {
		t.Errorf("theirs have changed: %d", len(got))
	}
}

// A Gateway whose class does not exist is nobody's: it is told so once, and nothing is written to it. It is served
// when the class comes, and by nobody when that is another controller's.
func TestAnUnknownClass(t *testing.T) {
	c := newCell(t)
	c.start()
	class := func(name, controller string) {
		t.Helper()
		c.must(c.api.RESTClient().Post().Resource("gatewayclasses").SetHeader("Content-Type", "application/json").
			Body([]byte(`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"GatewayClass","metadata":{"name":"` + name + `"},"spec":{"controllerName":"` + controller + `"}}`)).
			Do(t.Context()).Error())
		t.Cleanup(func() {
			c.must(c.api.GatewayClasses().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}))
		})
	}
	class("theirs", "example.com/other")
	for _, name := range []string{"later", "never", "theirs"} {
		c.put("Gateway", name, strings.Replace(listening, `"istio"`, `"`+name+`"`, 1))
	}
	said := func(name string) []string { return c.events.of("Gateway " + name + " Warning UnknownClass true: ") }
	c.await("both are told", func() bool { return len(said("later")) == 1 && len(said("never")) == 1 })
	_, err := c.api.Gateways(c.namespace).Patch(t.Context(), "never", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	c.must(err)
	c.put("HTTPRoute", "route", strings.Replace(routing, `"gw"`, `"never"`, 1))
	class("later", string(gatewaystatus.ControllerName))
	c.says("later", c.ofGateway("later"), "Accepted", "True/Accepted")
	c.settled()
	for name, want := range map[string]int{"later": 1, "never": 1, "theirs": 0} {
		if got := said(name); len(got) != want {
			t.Errorf("%s is told %q", name, got)
		}
	}
	if n := c.writes.count("/never/") + c.writes.count("/theirs/") + c.writes.count("/route/"); n != 0 {
		t.Errorf("%d writes to what is nobody's or another's: %q", n, c.writes.all)
	}
}

func TestACertificateNeedsAGrant(t *testing.T) {
	c := newCell(t)
	c.start()
	elsewhere := c.c.Namespace(t)
	_, err := c.admin.Kube().CoreV1().Secrets(elsewhere).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "cert"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{"tls.crt": []byte("Hello world"), "tls.key": []byte("Hello world")},
	}, metav1.CreateOptions{})
	c.must(err)
	c.put("Gateway", "gw", `{"gatewayClassName":"istio","listeners":[{"name":"https","port":443,"protocol":"HTTPS","tls":{"certificateRefs":[{"name":"cert","namespace":"`+elsewhere+`"}]}}]}`)
	c.says("gw", c.ofListener("gw"), "ResolvedRefs", "False/RefNotPermitted")
	grants := c.api.ReferenceGrants(elsewhere)
	_, err = grants.Create(t.Context(), &gateway.ReferenceGrant{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: gateway.ReferenceGrantSpec{
		From: []gateway.ReferenceGrantFrom{{Group: gateway.GroupName, Kind: "Gateway", Namespace: gateway.Namespace(c.namespace)}},
		To:   []gateway.ReferenceGrantTo{{Kind: "Secret"}},
	}}, metav1.CreateOptions{})
	c.must(err)
	c.says("gw", c.ofListener("gw"), "ResolvedRefs", "False/InvalidCertificateRef") // it is rubbish
	_, err = c.admin.Kube().CoreV1().Secrets(elsewhere).Patch(t.Context(), "cert", types.MergePatchType, certificate(t), metav1.PatchOptions{})
	c.must(err)
	c.says("gw", c.ofListener("gw"), "ResolvedRefs", "True/ResolvedRefs")
	c.must(grants.Delete(t.Context(), "a", metav1.DeleteOptions{}))
	c.says("gw", c.ofListener("gw"), "ResolvedRefs", "False/RefNotPermitted")
}

// What another revision has is left alone, and is taken over when it changes hands.
func TestOnlyTheRevisionsObjects(t *testing.T) {
	c := newCell(t)
	c.start()
	c.put("Gateway", "gw", listening)
	c.says("gw", c.ofGateway("gw"), "Accepted", "True/Accepted")
	c.label(c.namespace, "another-"+c.namespace)
	c.put("Gateway", "theirs", listening)
	c.put("HTTPRoute", "route", routing)
	mark := func(name, revision string) {
		t.Helper()
		_, err := c.api.Gateways(c.namespace).Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"labels":{"istio.io/rev":"`+revision+`"}}}`), metav1.PatchOptions{})
		c.must(err)
	}
	c.put("Gateway", "last", listening)
	mark("last", c.namespace)
	c.says("last", c.ofGateway("last"), "Accepted", "True/Accepted")
	if n := c.writes.count("/theirs/") + c.writes.count("/route/"); n != 0 {
		t.Errorf("%d writes of what is another's", n)
	}
	mark("theirs", c.namespace)
	c.says("theirs", c.ofGateway("theirs"), "Accepted", "True/Accepted")
	c.label(c.namespace, c.namespace)
	c.says("route", c.ofRoute("route", "gw"), "Accepted", "True/Accepted")
}

// With one right taken away the rest goes on; the lack is said once, tried with back-off, and over once it is.
func TestARightIsTakenAway(t *testing.T) {
	c := newCell(t)
	c.start()
	c.put("Gateway", "gw", listening)
	c.says("gw", c.ofGateway("gw"), "Accepted", "True/Accepted")
	rules := gatewaystatus.ClusterRules(true)
	var fewer []rbacv1.PolicyRule
	for _, rule := range rules {
		rule = *rule.DeepCopy()
		for i, resource := range rule.Resources {
			if resource == "httproutes/status" {
				rule.Resources[i] = "none/status"
			}
		}
		fewer = append(fewer, rule)
	}
	c.grant(fewer...)
	for i := range 3 {
		c.put("HTTPRoute", fmt.Sprint("route", i), routing)
	}
	c.await("refused", func() bool { return c.writes.count("/httproutes/", "403") >= 6 })
	c.put("Gateway", "second", listening)
	c.says("second", c.ofGateway("second"), "Accepted", "True/Accepted")
	if n := strings.Count(c.log.String(), "reconcile failed"); n != 1 {
		t.Errorf("said %d times", n)
	}
	for i := range 3 {
		said := c.events.of(fmt.Sprintf("HTTPRoute route%d Warning StatusNotWritten true: ", i))
		if len(said) != 1 || !strings.Contains(said[0], "forbidden") {
			t.Errorf("the Events are %q", c.events.of(""))
		}
	}
	c.grant(rules...)
	for i := range 3 {
		c.says("route", c.ofRoute(fmt.Sprint("route", i), "gw"), "Accepted", "True/Accepted")
	}
	c.await("works again", func() bool { return strings.Contains(c.log.String(), "reconcile succeeded again") })
}
