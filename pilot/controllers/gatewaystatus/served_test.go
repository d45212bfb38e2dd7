package gatewaystatus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

// stated is a condition as status/reason.
func stated(conditions []metav1.Condition, kind string) string {
	for _, c := range conditions {
		if c.Type == kind {
			return string(c.Status) + "/" + c.Reason
		}
	}
	return ""
}

func (s *stub) gateway() *gateway.Gateway {
	s.Helper()
	g, err := s.api.GatewayV1().Gateways("apps").Get(s.Context(), "gw", metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return g
}

// A Gateway that is served says so, by all that the caches have of it. A change of its address alone is a write, which leaves the
// times of what has not changed.
func TestAGatewayThatIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		plain := func(o *gateway.Gateway) {
			o.Spec.Listeners[0].Protocol, o.Spec.Listeners[0].TLS = gateway.HTTPProtocolType, nil
		}
		changed("gw", plain)(s)
		s.put(&gateway.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "further", ResourceVersion: "1"}, Spec: gateway.GatewayClassSpec{ControllerName: ControllerName}})
		s.run(Config{}, func() {
			synctest.Wait()
			before := s.gateway().Status
			if got := stated(before.Conditions, "Programmed"); got != "True/Programmed" {
				t.Errorf("Programmed is %s", got)
			}
			time.Sleep(time.Hour)
			s.put(&corev1.Service{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "apps", Name: "gw-istio", UID: "u", ResourceVersion: "200", Labels: map[string]string{gateway.GatewayNameLabelKey: "gw"},
					OwnerReferences: []metav1.OwnerReference{{Kind: "Gateway", Name: "gw", UID: "u"}},
				},
				Spec:   corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 443}}},
				Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.8"}}}},
			})
			synctest.Wait()
			after := s.gateway().Status
			if n := after.Listeners[0].AttachedRoutes; n != 1 {
				t.Errorf("%d routes are attached", n)
			}
			if len(after.Addresses) != 1 || after.Addresses[0].Value != "192.0.2.8" {
				t.Errorf("the addresses are %v", after.Addresses)
			}
			for i, c := range after.Listeners[0].Conditions {
				if !c.LastTransitionTime.Equal(&before.Listeners[0].Conditions[i].LastTransitionTime) {
					t.Errorf("%s has another time: %v", c.Type, c)
				}
			}
			want := map[string]int{"patch gateways apps/gw": 2, "patch httproutes apps/route": 1, "patch gatewayclasses /istio": 1, "patch gatewayclasses /further": 1}
			if got := s.tried(); !maps.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
		})
	})
}

// What a grant permits is judged by what is referred to, not by the permission.
func TestACertificateThatIsGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.run(Config{}, func() {
			if got := stated(s.gateway().Status.Listeners[0].Conditions, "ResolvedRefs"); got != "False/InvalidCertificateRef" {
				t.Errorf("ResolvedRefs is %s", got)
			}
		})
	})
}

// Objects come and go while the controller works, their namespaces too.
func TestWhatComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.run(Config{LeaveClass: true}, func() {
			for _, resource := range []string{"namespaces", "gatewayclasses/istio", "httproutes/route", "gateways/gw"} {
				kind, name, _ := strings.Cut(resource, "/")
				tracker, group, namespace := s.api.Tracker(), gateway.GroupName, "apps"
				switch kind {
				case "namespaces":
					tracker, group, namespace, name = s.core.Tracker(), "", "", "apps"
				case "gatewayclasses":
					namespace = ""
				}
				if err := tracker.Delete(schema.GroupVersionResource{Group: group, Version: "v1", Resource: kind}, namespace, name); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
			want := map[string]int{"patch gateways apps/gw": 1, "patch httproutes apps/route": 1, "patch gatewayclasses /istio": 1}
			if got := s.tried(); !maps.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
		})
	})
}

// A Gateway of the class istio that is another revision's gets no status where the class is missing either.
func TestAnotherRevisionsGatewayWithoutAClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.mine = "other"
		if err := s.api.Tracker().Delete(schema.GroupVersionResource{Group: gateway.GroupName, Version: "v1", Resource: "gatewayclasses"}, "", "istio"); err != nil {
			t.Fatal(err)
		}
		s.run(Config{LeaveClass: true}, func() {
			time.Sleep(time.Minute)
			if got := s.tried(); len(got) > 0 {
				t.Errorf("%v", got)
			}
		})
	})
}

// That a route's status has no room is said on the route.
func TestARouteWhoseStatusIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		changed("route", func(o *gateway.HTTPRoute) {
			for n := range maxParents {
				o.Status.Parents = append(o.Status.Parents, gateway.RouteParentStatus{
					ParentRef: gateway.ParentReference{Name: gateway.ObjectName(fmt.Sprint("theirs-", n))}, ControllerName: "example.com/theirs",
				})
			}
		})(s)
		s.run(Config{}, func() {
			s.set(func() {
				if len(s.events) != 1 || !strings.HasPrefix(s.events[0], "HTTPRoute route StatusFull: ") {
					t.Errorf("Events: %q", s.events)
				}
			})
		})
	})
}

// A second Run beside the first one is an error, and a class that cannot be made is one line of the log.
func TestRunSaysWhatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		if err := s.api.Tracker().Delete(schema.GroupVersionResource{Group: gateway.GroupName, Version: "v1", Resource: "gatewayclasses"}, "", "istio"); err != nil {
			t.Fatal(err)
		}
		s.answer = errForbidden
		c := s.controller(Config{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		synctest.Wait()
		if err := c.Run(ctx); !errors.Is(err, reconcile.ErrRunning) {
			t.Errorf("a second Run: %v", err)
		}
		cancel()
		if err := <-ended; err != nil || s.tried()["create gatewayclasses"] == 0 {
			t.Errorf("%v, after %v", err, s.tried())
		}
	})
}

// Without a logger problems reach the one of the process.
func TestNoLogger(t *testing.T) {
	if c := (Config{}).withDefaults(); c.Logger == nil {
		t.Error("there is none")
	}
	s := &stub{T: t}
	s.core, s.api = newStub(t).core, newStub(t).api
	c, err := New(s, Config{Tags: s})
	if err != nil {
		t.Fatal(err)
	}
	c.problems.Report(key{}, nil, reconcile.Problemf("R", "m")) // which has nobody to write an Event
}

func TestKindsAndNamesOfListeners(t *testing.T) {
	route := gateway.RouteGroupKind{Kind: routeKind}
	kinds, wrong := routeKinds(gateway.Listener{AllowedRoutes: &gateway.AllowedRoutes{Kinds: []gateway.RouteGroupKind{route, route}}})
	if len(kinds) != 1 || wrong != nil {
		t.Errorf("%v, %v", kinds, wrong)
	}
	all := []listener{{Listener: gateway.Listener{Name: "b"}}, {Listener: gateway.Listener{Name: "a"}}}
	if got := names(all, func(*listener) bool { return false }); got != "[a b]" {
		t.Error(got)
	}
}
