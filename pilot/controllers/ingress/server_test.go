package ingress

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Every Ingress of the class, whatever its revision, follows the Service through all that its
// addresses can be; others' are left alone; each change is one write for each, and what others
// have on the object stays.
func TestStatusFollowsTheService(t *testing.T) {
	e := newEnvironment(t)
	classes := e.admin.Kube().NetworkingV1().IngressClasses()
	for name, controller := range map[string]string{"mine": ControllerName, "theirs": "k8s.io/ingress-nginx"} {
		check[*networkingv1.IngressClass](e)(classes.Create(t.Context(), &networkingv1.IngressClass{
			ObjectMeta: metav1.ObjectMeta{Name: e.home + name, Labels: map[string]string{"of": e.home}}, Spec: networkingv1.IngressClassSpec{Controller: controller},
		}, metav1.CreateOptions{}))
	}
	t.Cleanup(func() { // or the next test's controller would have its Ingresses, too
		ours := metav1.ListOptions{LabelSelector: "of=" + e.home}
		if err := classes.DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{}, ours); err != nil {
			t.Error(err)
		}
	})
	named := func(class string) func(*networkingv1.Ingress) {
		return func(i *networkingv1.Ingress) {
			delete(i.Annotations, classAnnotation)
			i.Spec.IngressClassName = &class
		}
	}
	e.ingress("annotated", nil)
	e.ingress("canary", func(i *networkingv1.Ingress) { i.Labels["istio.io/rev"] = "canary" })
	e.ingress("named", named(e.home+"mine"))
	e.ingress("foreign", named(e.home+"theirs"))
	e.ingress("unknown", named(e.home+"later"))
	e.ingress("classless", func(i *networkingv1.Ingress) { delete(i.Annotations, classAnnotation) })
	e.service(corev1.LoadBalancerIngress{Hostname: "b.example"}, corev1.LoadBalancerIngress{IP: "192.0.2.2"}, corev1.LoadBalancerIngress{IP: "192.0.2.1"})

	c := e.controller(e.identity("patch"))
	if err := c.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := e.sent.count(); n != 0 {
		t.Errorf("%d writes before it may", n)
	}
	end := e.run(c)
	mine, others := []string{"annotated", "canary", "named"}, []string{"foreign", "unknown", "classless"}
	writes := 0
	step := func(want ...address) {
		t.Helper()
		e.awaitStatus(want, mine...)
		writes += len(mine)
		if n := e.sent.count(); n != writes {
			t.Errorf("%d writes, want %d", n, writes)
		}
	}
	step(host("b.example"), ip("192.0.2.1"), ip("192.0.2.2"))
	await(t, "the class is said to be unknown", func() bool { return len(e.events.list()) > 0 })
	port := corev1.PortStatus{Port: 80, Protocol: "TCP"}
	e.balance(corev1.LoadBalancerIngress{IP: "192.0.2.3", Ports: []corev1.PortStatus{port}})
	step(ip("192.0.2.3", networkingv1.IngressPortStatus{Port: 80, Protocol: "TCP"}))
	e.balance()
	step()
	e.patchService(`{"spec":{"externalIPs":["192.0.2.4"]}}`)
	step(ip("192.0.2.4"))
	e.patchService(`{"spec":{"externalIPs":null}}`)
	step()
	e.runGateway("one", "192.0.2.11", "192.0.2.10")
	step(ip("192.0.2.10"), ip("192.0.2.11"))
	e.runGateway("two", "192.0.2.12", "192.0.2.10")
	step(ip("192.0.2.10"), ip("192.0.2.11"), ip("192.0.2.12"))
	e.patchService(`{"spec":{"type":"ExternalName","externalName":"gateway.example"}}`)
	step(host("gateway.example"))

	// A class that comes later is known then, and one of the class no more keeps what it has.
	check[*networkingv1.IngressClass](e)(classes.Create(t.Context(), &networkingv1.IngressClass{
		ObjectMeta: metav1.ObjectMeta{Name: e.home + "later", Labels: map[string]string{"of": e.home}}, Spec: networkingv1.IngressClassSpec{Controller: ControllerName},
	}, metav1.CreateOptions{}))
	e.awaitStatus([]address{host("gateway.example")}, "unknown")
	if got := e.events.list(); len(got) != 1 || !strings.HasPrefix(got[0], "unknown Warning UnknownClass there is no IngressClass "+e.home+"later") {
		t.Errorf("Events: %q", got)
	}
	e.change("canary", func(i *networkingv1.Ingress) { i.Annotations[classAnnotation] = "nginx" })
	e.patchService(`{"spec":{"externalName":"new.example"}}`)
	e.awaitStatus([]address{host("new.example")}, "annotated", "named", "unknown")
	e.awaitStatus([]address{host("gateway.example")}, "canary")
	e.awaitStatus(nil, "foreign", "classless")
	writes += 4
	if i := e.get("named"); i.Labels["theirs"] != "2" || i.Annotations["theirs"] != "1" || i.Spec.DefaultBackend == nil {
		t.Errorf("others' parts of it are gone: %v", i)
	}
	end()
	for _, name := range others {
		e.change(name, func(i *networkingv1.Ingress) { i.Labels["changed"] = "1" })
	}
	// Who follows has nothing to write.
	e.run(c)
	e.ingress("last", nil)
	e.awaitStatus([]address{host("new.example")}, "last")
	if n := e.sent.count(); n != writes+1 {
		t.Errorf("%d writes, want %d: %q", n, writes+1, e.sent.all)
	}
}

func (e *environment) patchService(patch string) {
	e.Helper()
	check[*corev1.Service](e)(e.admin.Kube().CoreV1().Services(e.home).Patch(e.Context(), "gateway", types.MergePatchType, []byte(patch), metav1.PatchOptions{}))
}

// runGateway makes a node with these addresses, and a pod of the gateway that runs there.
func (e *environment) runGateway(node string, addresses ...string) {
	e.Helper()
	core, ctx := e.admin.Kube().CoreV1(), e.Context()
	n := check[*corev1.Node](e)(core.Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: e.home + node}}, metav1.CreateOptions{}))
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: a})
	}
	check[*corev1.Node](e)(core.Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{}))
	p := check[*corev1.Pod](e)(core.Pods(e.home).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "gateway-" + node, Labels: map[string]string{"app": "gateway"}},
		Spec:       corev1.PodSpec{ServiceAccountName: "controller", NodeName: n.Name, Containers: []corev1.Container{{Name: "gateway", Image: "gateway"}}},
	}, metav1.CreateOptions{}))
	p.Status.Phase = corev1.PodRunning
	check[*corev1.Pod](e)(core.Pods(e.home).UpdateStatus(ctx, p, metav1.UpdateOptions{}))
}

// What was decided on an earlier version is not written: here the Ingress leaves the class between
// the look and the write.
func TestStatusIsGuardedByTheVersion(t *testing.T) {
	e := newEnvironment(t)
	e.ingress("leaves", nil)
	e.service(corev1.LoadBalancerIngress{IP: "192.0.2.1"})
	e.sent.before = func() {
		e.sent.mu.Lock()
		e.sent.before = nil
		e.sent.mu.Unlock()
		e.change("leaves", func(i *networkingv1.Ingress) { i.Annotations[classAnnotation] = "nginx" })
	}
	e.run(e.controller(e.identity("patch")))
	await(t, "it tries", func() bool { return e.sent.count() == 1 })
	e.ingress("marker", nil)
	e.awaitStatus([]address{ip("192.0.2.1")}, "marker")
	if !e.has("leaves") || e.sent.count() != 2 {
		t.Errorf("%q, and its status is %v", e.sent.all, e.get("leaves").Status)
	}
	// It comes back, and is written by the version that it has then.
	e.change("leaves", func(i *networkingv1.Ingress) { i.Annotations[classAnnotation] = e.class })
	e.awaitStatus([]address{ip("192.0.2.1")}, "leaves")
}

// While there is no Service, statuses stay as they are, and that is said once.
func TestWithoutTheServiceStatusesStay(t *testing.T) {
	e := newEnvironment(t)
	e.ingress("one", nil)
	e.ingress("two", nil)
	i := e.get("one")
	i.Status.LoadBalancer.Ingress = []address{ip("192.0.2.9")}
	check[*networkingv1.Ingress](e)(e.admin.Kube().NetworkingV1().Ingresses(e.home).UpdateStatus(t.Context(), i, metav1.UpdateOptions{}))
	e.run(e.controller(e.identity("patch")))
	const line = "the gateway's Service does not exist, Ingresses keep their status"
	await(t, "it is said", func() bool { return e.log.Count(line) == 1 })
	e.service(corev1.LoadBalancerIngress{IP: "192.0.2.1"})
	e.awaitStatus([]address{ip("192.0.2.1")}, "one", "two")
	if err := e.admin.Kube().CoreV1().Services(e.home).Delete(t.Context(), "gateway", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "it is said anew", func() bool { return e.log.Count(line) == 2 })
	if !e.has("one", ip("192.0.2.1")) || !e.has("two", ip("192.0.2.1")) || e.log.Count("the gateway's Service exists now") != 1 {
		t.Error("the statuses were changed, or it is said more often")
	}
}

// With the right to write taken away, each Ingress gets an Event, the log one line, and tries
// become rare; with the right given, all is written.
func TestTheRightToWriteIsMissing(t *testing.T) {
	e := newEnvironment(t)
	e.ingress("one", nil)
	e.ingress("two", nil)
	e.service(corev1.LoadBalancerIngress{IP: "192.0.2.1"})
	e.run(e.controller(e.identity()))
	await(t, "both have been tried several times", func() bool { return e.sent.count() >= 8 })
	// Those of earlier tests name classes that are gone, and are told so.
	got := slices.DeleteFunc(e.events.list(), func(event string) bool { return strings.Contains(event, ReasonUnknownClass) })
	if len(got) != 2 || !strings.Contains(got[0]+got[1], "one Warning StatusNotWritten writing the status of Ingress "+e.home+"/one: ") ||
		!strings.Contains(got[0]+got[1], "two Warning StatusNotWritten ") {
		t.Errorf("Events: %q", got)
	}
	if n := e.log.Count("reconcile failed, trying on"); n != 1 {
		t.Errorf("said %d times", n)
	}
	e.identity("patch")
	e.awaitStatus([]address{ip("192.0.2.1")}, "one", "two")
	await(t, "that it is over is said", func() bool { return e.log.Count("reconcile succeeded again") == 1 })
}
