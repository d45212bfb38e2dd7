package server

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// What is wrong with the objects or the rights of one controller is said on the object, and stops none of the others:
// a process that leads all of them goes on, tries what fails ever more rarely, and does it once it can.
func TestBadInputStopsNoOtherController(t *testing.T) {
	w := newWorld(t, build(t))
	if len(rows()) != len(locks) {
		t.Fatalf("the server has the controllers %q", rows())
	}
	p := w.pilot("server", -1)
	w.leads(p)
	w.fresh(0)
	w.settled(p, 0)

	allow := w.forbid("ingresses/status")
	w.fresh(1)
	w.settled(p, 1, ingressRow)
	w.told(p, "Ingress", 1, "StatusNotWritten")
	w.await("it is tried again", p, func() bool { return w.audit.of(p.Name, w.home)[ingressRow].refused >= 4 })
	w.fresh(2)
	w.settled(p, 2, ingressRow)
	allow()
	w.settled(p, 1)
	w.settled(p, 2)

	templates := w.admin.CoreV1().ConfigMaps(w.home)
	_, err := templates.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "istio-gateway-template"}, Data: map[string]string{"template.yaml": "rubbish"},
	}, metav1.CreateOptions{})
	w.must(err)
	w.fresh(3)
	w.settled(p, 3, deploymentRow)
	w.told(p, "Gateway", 3, "InvalidTemplate")
	w.must(templates.Delete(t.Context(), "istio-gateway-template", metav1.DeleteOptions{}))
	w.settled(p, 3)

	remove := func(resource string) {
		t.Helper()
		w.must(w.objects.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}).
			Delete(t.Context(), resource+"."+gateway.GroupName, metav1.DeleteOptions{}))
		w.await("it is gone", p, func() bool {
			_, err := w.objects.Resource(schema.GroupVersionResource{Group: gateway.GroupName, Version: "v1", Resource: resource}).List(t.Context(), metav1.ListOptions{})
			return apierrors.IsNotFound(err)
		})
	}
	remove("httproutes")
	w.fresh(4)
	w.settled(p, 4)
	remove("gateways")
	w.freshWithoutGateway(5)
	w.settled(p, 5, statusRow, deploymentRow)
	w.must(w.cluster.LoadGatewayAPI(t.Context()))
	w.fresh(6)
	w.settled(p, 6)
	for row, work := range w.audit.of(p.Name, w.home) {
		// Two Ingresses, each after 0.1, 0.2, 0.4, … seconds; and what was changed in between, or was gone.
		if work.refused > 2*12 {
			t.Errorf("%s: %d writes were refused", row, work.refused)
		}
	}
}

// forbid takes the right to a resource away, until what it returns is called.
func (w *world) forbid(resource string) (allow func()) {
	w.Helper()
	roles, name := w.admin.RbacV1().ClusterRoles(), w.home+":pilot"
	role, err := roles.Get(w.Context(), name, metav1.GetOptions{})
	w.must(err)
	set := func(rules []rbacv1.PolicyRule) {
		w.Helper()
		_, err := roles.Update(w.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.UpdateOptions{})
		w.must(err)
	}
	left := slices.DeleteFunc(slices.Clone(role.Rules), func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, resource) })
	if len(left) != len(role.Rules)-1 {
		w.Fatalf("%d rules are about %s: %v", len(role.Rules)-len(left), resource, role.Rules)
	}
	set(left)
	return func() { set(role.Rules) }
}

// told waits until there is an Event on a fresh object, and wants it to be the only one of its reason.
func (w *world) told(p *pilot, kind string, i int, reason string) {
	w.Helper()
	name := fmt.Sprint(freshPrefix, i)
	w.await(fmt.Sprintf("%s %s is told %s", kind, name, reason), p, func() bool {
		all, err := w.admin.CoreV1().Events(name).List(w.Context(), metav1.ListOptions{})
		w.must(err)
		n := 0
		for _, e := range all.Items {
			if e.InvolvedObject.Kind == kind && e.InvolvedObject.Name == name && e.Reason == reason {
				n += max(1, int(e.Count))
			}
		}
		if n > 1 {
			w.Fatalf("%s is told %s %d times", name, reason, n)
		}
		return n == 1
	})
}
