package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/controllers/gatewaydeploy"
	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

const (
	listening = `{"gatewayClassName":"istio","listeners":[{"name":"http","port":80,"protocol":"HTTP"}]}`
	routing   = `{"parentRefs":[{"name":"gw"}],"rules":[{"backendRefs":[{"name":"backend","port":8080}]}]}`
)

func (c *cell) backend(name string) {
	c.Helper()
	_, err := c.admin.Kube().CoreV1().Services(c.home).Create(c.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 8080}}},
	}, metav1.CreateOptions{})
	c.must(err)
}

// The status follows the cluster until the Gateway is served. Without changes nothing is written.
func TestStatus_FollowsCluster(t *testing.T) {
	c := newCell(t)
	c.start()
	c.condition(func() []metav1.Condition { // no revision is the default
		class, err := c.api.GatewayClasses().Get(t.Context(), "istio", metav1.GetOptions{})
		if err != nil || class.Spec.ControllerName != reconcile.GatewayController {
			return nil
		}
		return class.Status.Conditions
	}, "Accepted", "True/Accepted", "")
	c.put("Gateway", "gw", listening)
	c.put("HTTPRoute", "route", routing)
	c.condition(c.ofGateway("gw"), "Accepted", "True/Accepted", "")
	c.condition(c.ofGateway("gw"), "Programmed", "False/Pending", "")
	c.condition(c.ofRoute("route", "gw"), "Accepted", "True/Accepted", "")
	c.condition(c.ofRoute("route", "gw"), "ResolvedRefs", "False/BackendNotFound", "")
	c.backend("backend")
	c.condition(c.ofRoute("route", "gw"), "ResolvedRefs", "True/ResolvedRefs", "")

	c.deploy("gw-istio")
	c.patch(gatewaydeploy.Deployment.Resource(), c.home, "gw-istio", fmt.Sprintf(`{"status":{"observedGeneration":%d,"replicas":1,"updatedReplicas":1,
		"readyReplicas":1,"availableReplicas":1,"conditions":[{"type":"Available","status":"True"}]}}`, c.get(gatewaydeploy.Deployment, "gw-istio").GetGeneration()), "status")
	c.condition(c.ofGateway("gw"), "Programmed", "False/AddressNotAssigned", "")
	c.patch(gatewaydeploy.Service.Resource(), c.home, "gw-istio", `{"status":{"loadBalancer":{"ingress":[{"ip":"127.0.0.9"},{"ip":"127.0.0.8"}]}}}`, "status")
	c.condition(c.ofGateway("gw"), "Programmed", "True/Programmed", "")
	c.condition(func() []metav1.Condition { return c.read("gw").Status.Listeners[0].Conditions }, "Programmed", "True/Programmed", "")
	g := c.read("gw")
	if len(g.Status.Addresses) != 2 || g.Status.Addresses[0].Value != "127.0.0.9" || g.Status.Listeners[0].AttachedRoutes != 1 {
		t.Errorf("addresses are %v, listeners %v", g.Status.Addresses, g.Status.Listeners)
	}

	// After a new generation, unchanged conditions keep their times.
	c.patch(gatewaysResource, c.home, "gw", `{"spec":{"infrastructure":{"labels":{"a":"b"}}}}`)
	c.until("the generation is observed", func() bool {
		now := c.read("gw")
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
}

// deploy runs a deployment controller without an election until it has created the objects of a name.
func (c *cell) deploy(name string) {
	c.Helper()
	d, err := gatewaydeploy.New(c.admin, gatewaydeploy.Config{
		Namespace: c.home, Revision: c.home, IsMine: func(meta metav1.ObjectMeta) bool { return meta.Namespace == c.home },
		Logger: slog.New(slog.DiscardHandler),
	})
	c.must(err)
	ctx, cancel := context.WithCancel(c.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	c.exist(true, name, workload...)
	cancel()
	c.must(<-ended)
}

// quiet checks that a restart and irrelevant changes cause no writes. All writes of a controller that has ended are recorded.
func (c *cell) quiet() {
	c.Helper()
	writes := func() int {
		c.end()
		return c.sent.Count("PATCH", "/gw/") + c.sent.Count("PATCH", "/route/")
	}
	before := writes()
	c.start()
	c.patch(gatewaysResource, c.home, "gw", `{"metadata":{"annotations":{"a":"b"}}}`)
	c.patch(namespaces, "", c.home, `{"metadata":{"labels":{"a":"b"}}}`)
	c.put("Gateway", "last", listening)
	c.condition(c.ofGateway("last"), "Accepted", "True/Accepted", "")
	if n := writes(); n != before {
		c.Errorf("%d unnecessary writes:\n%s", n-before, c.sent)
	}
}
