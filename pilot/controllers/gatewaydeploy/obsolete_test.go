package gatewaydeploy

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

// reachable marks the objects of a name as available and addressed.
func (p *played) reachable(name string) {
	if d, ok := p.objects["Deployment/"+name].(*appsv1.Deployment); ok {
		d.Status = appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1}
	}
	if s, ok := p.objects["Service/"+name].(*corev1.Service); ok {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{}}
	}
}

func addresses(kinds ...gateway.AddressType) func(*gateway.Gateway) {
	return func(gw *gateway.Gateway) {
		for _, kind := range kinds {
			gw.Spec.Addresses = append(gw.Spec.Addresses, gateway.GatewaySpecAddress{Type: &kind, Value: "a"})
		}
	}
}

// Each case changes a deployed Gateway.
func TestObsolete(t *testing.T) {
	const kept, deleted = "", "delete delete delete"
	class := func(p *played, controller gateway.GatewayController) {
		p.Gateway.Spec.GatewayClassName = "other"
		p.Class = &gateway.GatewayClass{Spec: gateway.GatewayClassSpec{ControllerName: controller}}
	}
	renamed := func(p *played) {
		annotated(NameOverride, "edge")(p.Gateway)
		p.settle()
	}
	for name, c := range map[string]struct {
		change func(*played)
		want   string
	}{
		"new name":                {func(p *played) { annotated(NameOverride, "edge")(p.Gateway) }, "leave create create"},
		"new name, not available": {renamed, "leave leave leave"},
		"new name, no address": {func(p *played) {
			renamed(p)
			p.reachable("edge")
			p.objects["Service/edge"].(*corev1.Service).Status = corev1.ServiceStatus{}
		}, "leave leave leave"},
		"new name, no address before": {func(p *played) {
			renamed(p)
			p.reachable("edge")
			p.objects["Service/edge"].(*corev1.Service).Status = corev1.ServiceStatus{}
			p.objects["Service/web-istio"].(*corev1.Service).Status = corev1.ServiceStatus{}
		}, "leave leave leave delete delete"},
		"new name, reachable":     {func(p *played) { renamed(p); p.reachable("edge") }, "leave leave leave delete delete"},
		"new name, other problem": {func(p *played) { renamed(p); p.reachable("edge"); p.objects["ServiceAccount/web-istio"].SetLabels(nil) }, "leave:NotManaged leave leave"},
		"new account": {func(p *played) {
			annotated(accountOverride, "sa")(p.Gateway)
			p.settle()
			p.put(Deployment, write{reconcile.GatewayController, true, p.plan().document(Deployment).Object})
			p.reachable("web-istio")
		}, "leave leave leave delete"},
		"new class, reachable":      {func(p *played) { class(p, reconcile.GatewayController); p.settle(); p.reachable("web-other") }, "leave leave leave delete delete delete"},
		"missing class":             {func(p *played) { p.Gateway.Spec.GatewayClassName = "none" }, kept},
		"foreign class":             {func(p *played) { class(p, "example.com/c") }, kept},
		"foreign class, programmed": {func(p *played) { class(p, "example.com/c"); programmed(p.Gateway, 0) }, deleted},
		"foreign class, generation": {func(p *played) { class(p, "example.com/c"); programmed(p.Gateway, -1) }, kept},
		"foreign class, adopted": {func(p *played) {
			class(p, "example.com/c")
			programmed(p.Gateway, 0)
			p.objects["Service/web-istio"].GetLabels()[gateway.GatewayClassNameLabelKey] = "other"
		}, "delete delete"},
		"manual deployment":             {func(p *played) { addresses(gateway.HostnameAddressType)(p.Gateway) }, deleted},
		"two addresses":                 {func(p *played) { addresses(gateway.IPAddressType, gateway.IPAddressType)(p.Gateway) }, kept},
		"two addresses, one manual":     {func(p *played) { addresses(gateway.IPAddressType, "example.com/a")(p.Gateway) }, deleted},
		"another revision":              {func(p *played) { p.IsMine = func(metav1.ObjectMeta) bool { return false } }, kept},
		"manual, other version":         {func(p *played) { addresses("example.com/a")(p.Gateway); annotated(versionAnnotation, "6")(p.Gateway) }, kept},
		"manual, being deleted":         {func(p *played) { addresses("example.com/a")(p.Gateway); p.Gateway.DeletionTimestamp = &metav1.Time{} }, kept},
		"manual, Service without label": {func(p *played) { addresses("example.com/a")(p.Gateway); p.objects["Service/web-istio"].SetLabels(nil) }, "delete delete"},
		"manual, other UID":             {func(p *played) { addresses("example.com/a")(p.Gateway); p.Gateway.UID = "uid-2" }, kept},
		"manual, not written by us": {func(p *played) {
			addresses("example.com/a")(p.Gateway)
			p.objects["Service/web-istio"].SetManagedFields(nil)
		}, "delete delete"},
		"manual, Service being deleted": {func(p *played) {
			addresses("example.com/a")(p.Gateway)
			p.objects["Service/web-istio"].SetDeletionTimestamp(&metav1.Time{})
		}, "delete delete"},
		"manual, other Gateway uses them": {func(p *played) {
			addresses("example.com/a")(p.Gateway)
			p.Shared = func(kind Kind, name string) bool { return kind == ServiceAccount && name == "web-istio" }
		}, "delete delete"},
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t)
			p.settle()
			p.reachable("web-istio")
			c.change(p)
			if got := p.plan().actions(); got != c.want {
				t.Errorf("the plan is %q, want %q", got, c.want)
			}
		})
	}
}

// A deletion first sets the label of the revision, unless the object has it.
func TestObsolete_SetsRevision(t *testing.T) {
	p := play(t)
	p.settle()
	addresses(gateway.HostnameAddressType)(p.Gateway)
	service := p.objects["Service/web-istio"]
	service.SetResourceVersion("7")
	service.GetLabels()[RevisionLabel] = "other"
	for _, s := range p.plan().Steps {
		labels, marked, _ := unstructured.NestedStringMap(s.Document, "metadata", "labels")
		if marked != (s.Kind == Service) || marked && labels[RevisionLabel] != p.Revision {
			t.Errorf("%s %s sets labels %v", s.Action, s.Kind, labels)
		}
	}
}

// programmed sets the status as another controller does.
func programmed(gw *gateway.Gateway, generation int64) {
	gw.Status.Conditions = []metav1.Condition{{Type: string(gateway.GatewayConditionProgrammed), Status: metav1.ConditionTrue, ObservedGeneration: generation}}
}

func TestRolledOut(t *testing.T) {
	is := func(generation, observed int64, replicas, updated, available int32) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: generation}, Status: appsv1.DeploymentStatus{
			ObservedGeneration: observed, Replicas: replicas, UpdatedReplicas: updated, AvailableReplicas: available,
		}}
	}
	empty := is(1, 0, 0, 0, 0)
	empty.Spec.Replicas = new(int32)
	for name, c := range map[string]struct {
		d    *appsv1.Deployment
		want bool
	}{
		"new": {is(1, 0, 0, 0, 0), false}, "no pod": {is(1, 1, 0, 0, 0), false}, "not available": {is(1, 1, 1, 1, 0), false},
		"available": {is(1, 1, 1, 1, 1), true}, "old pod": {is(1, 1, 2, 1, 2), false}, "old generation": {is(2, 1, 1, 1, 1), false}, "no replicas": {empty, true},
	} {
		if got := rolledOut(c.d); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
