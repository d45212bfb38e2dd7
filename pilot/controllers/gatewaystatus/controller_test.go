package gatewaystatus

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/controllertest"
	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

// A change that affects a status causes an attempt during back-off. Other changes do not.
func TestReconcile_CausedByChange(t *testing.T) {
	note := map[string]string{"changed": "1"}
	for name, test := range map[string]struct {
		change         func(*stub)
		gateway, route int
		class          int
	}{
		"a class's annotation":     {change: changed("istio", func(o *gateway.GatewayClass) { o.Annotations = note })},
		"a class's parameters":     {changed("istio", func(o *gateway.GatewayClass) { o.Spec.ParametersRef = &gateway.ParametersReference{} }), 1, 1, 1},
		"a Gateway's annotation":   {change: changed("gw", func(o *gateway.Gateway) { o.Annotations = note })},
		"a Gateway's other name":   {changed("gw", func(o *gateway.Gateway) { o.Annotations = map[string]string{"gateway.istio.io/name-override": "x"} }), 1, 1, 0},
		"a Gateway's listeners":    {changed("gw", func(o *gateway.Gateway) { o.Spec.Listeners[0].Port = 444 }), 1, 1, 0},
		"a route's annotation":     {change: changed("route", func(o *route) { o.Annotations = note })},
		"a route's backend":        {changed("route", func(o *route) { o.Spec.Rules = nil }), 1, 1, 0},
		"a grant's annotation":     {change: changed("grant", func(o *gateway.ReferenceGrant) { o.Annotations = note })},
		"a grant":                  {changed("grant", func(o *gateway.ReferenceGrant) { o.Spec.To = nil }), 1, 0, 0},
		"a namespace's annotation": {change: changed("apps", func(o *corev1.Namespace) { o.Annotations = note })},
		"a namespace's label":      {changed("apps", func(o *corev1.Namespace) { o.Labels = note }), 1, 1, 0},
		"a backend's annotation":   {change: changed("backend", func(o *corev1.Service) { o.Annotations = note })},
		"a backend's target":       {change: changed("backend", func(o *corev1.Service) { o.Spec.Ports[0].TargetPort.IntVal = 7 })},
		"a backend's port":         {changed("backend", func(o *corev1.Service) { o.Spec.Ports[0].Port = 81 }), 0, 1, 0},
		"a Service's address":      {changed("gw-istio", func(o *corev1.Service) { o.Status.LoadBalancer.Ingress[0].IP = "192.0.2.2" }), 1, 0, 0},
		"a Service's external IP":  {changed("gw-istio", func(o *corev1.Service) { o.Spec.ExternalIPs = []string{"192.0.2.2"} }), 1, 0, 0},
		"a Service's cluster IP":   {changed("gw-istio", func(o *corev1.Service) { o.Spec.ClusterIPs = []string{"192.0.2.2"} }), 1, 0, 0},
		"a Service's type":         {changed("gw-istio", func(o *corev1.Service) { o.Spec.Type = "NodePort" }), 1, 0, 0},
		"a Service's owner":        {changed("gw-istio", func(o *corev1.Service) { o.OwnerReferences = nil }), 1, 0, 0},
		"a certificate's note":     {change: changed("tls", func(o *corev1.Secret) { o.Annotations = note })},
		"a certificate": {changed("tls", func(o *corev1.Secret) {
			o.Data = map[string][]byte{"tls.crt": []byte("-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----")}
		}), 1, 1, 0},
		"a Deployment's note":      {change: changed("gw-istio", func(o *appsv1.Deployment) { o.Annotations = note })},
		"a Deployment's replicas":  {change: changed("gw-istio", func(o *appsv1.Deployment) { o.Spec.Replicas = new(int32) })},
		"a Deployment's status":    {changed("gw-istio", func(o *appsv1.Deployment) { o.Status.AvailableReplicas = 0 }), 1, 0, 0},
		"a Deployment's owner":     {changed("gw-istio", func(o *appsv1.Deployment) { o.OwnerReferences = nil }), 1, 0, 0},
		"a Pod's note":             {change: changed("gw-istio-1-a", func(o *corev1.Pod) { o.Annotations = note })},
		"a Pod's probe":            {change: changed("gw-istio-1-a", func(o *corev1.Pod) { o.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady}} })},
		"a Pod's cause":            {changed("gw-istio-1-a", func(o *corev1.Pod) { o.Status = corev1.PodStatus{Phase: corev1.PodFailed} }), 1, 0, 0},
		"an autoscaler's replicas": {change: changed("gw-istio", func(o *autoscalingv2.HorizontalPodAutoscaler) { o.Status.CurrentReplicas = 2 })},
		"an autoscaler's cause": {changed("gw-istio", func(o *autoscalingv2.HorizontalPodAutoscaler) {
			o.Status.Conditions = []autoscalingv2.HorizontalPodAutoscalerCondition{{Type: autoscalingv2.ScalingActive, Status: corev1.ConditionFalse, Reason: "FailedGetResourceMetric"}}
		}), 1, 0, 0},
		"an Event about a Service": {changed("warning", func(o *corev1.Event) { o.Message = "quota" }), 1, 0, 0},
		"tags":                     {func(s *stub) { s.handler(nil) }, 1, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.answers(errForbidden)
				s.run(Config{}, func() {
					time.Sleep(2 * time.Minute) // the delay is 30 s now
					synctest.Wait()
					before := s.tried()
					test.change(s)
					synctest.Wait()
					after := s.tried()
					for what, want := range map[string]int{"gateways apps/gw": test.gateway, "httproutes apps/route": test.route, "gatewayclasses /istio": test.class} {
						if n := after["patch "+what] - before["patch "+what]; before["patch "+what] == 0 || n != want {
							t.Errorf("%s: %d attempts, then %d, want %d", what, before["patch "+what], n, want)
						}
					}
				})
			})
		})
	}
}

// A grant affects only objects that refer to its namespace.
func TestReconcile_GrantForRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.answers(errForbidden)
		certs := gateway.Namespace("certs")
		changed("gw", func(o *gateway.Gateway) { o.Spec.Listeners[0].TLS = nil })(s)
		changed("route", func(o *route) { o.Spec.Rules[0].BackendRefs[0].Namespace = &certs })(s)
		s.run(Config{}, func() {
			for from, want := range map[gateway.Namespace]int{"apps": 1, "other": 0} {
				changed("grant", func(o *gateway.ReferenceGrant) { o.Spec.From[0].Namespace = "nothing" })(s)
				time.Sleep(2 * time.Minute) // the delay is 30 s now
				synctest.Wait()
				before := s.tried()
				changed("grant", func(o *gateway.ReferenceGrant) { o.Spec.From[0].Namespace = from })(s)
				synctest.Wait()
				after := s.tried()
				if n := after["patch httproutes apps/route"] - before["patch httproutes apps/route"]; n != want {
					t.Errorf("grant for %s: %d attempts for the route, want %d", from, n, want)
				}
				if n := after["patch gateways apps/gw"] - before["patch gateways apps/gw"]; n != 0 {
					t.Errorf("grant for %s: %d attempts for the Gateway", from, n)
				}
			}
		})
	})
}

func TestReconcile_WritesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.run(Config{}, func() {
			time.Sleep(5 * time.Minute)
			s.handler(nil)
			synctest.Wait()
			want := map[string]int{"patch gateways apps/gw": 1, "patch httproutes apps/route": 1, "patch gatewayclasses /istio": 1}
			if got := s.tried(); !maps.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
			g := s.gateway()
			if len(g.Status.Conditions) < 2 || len(g.Status.Addresses) != 1 || len(g.Status.Listeners) != 1 ||
				state(g.Status.Listeners[0].Conditions, "ResolvedRefs") != "False/InvalidCertificateRef" {
				t.Errorf("Gateway: %+v", g.Status)
			}
			for _, c := range slices.Concat(g.Status.Conditions, g.Status.Listeners[0].Conditions) {
				if c.LastTransitionTime.IsZero() {
					t.Errorf("condition %s has no time", c.Type)
				}
			}
			r := &route{}
			if !s.Get("httproutes", "apps", "route", r) || len(r.Status.Parents) != 1 {
				t.Errorf("route: %+v", r)
			}
			if len(s.events) > 0 || s.Log.String() != "" {
				t.Errorf("events %q, log:\n%s", s.events, &s.Log)
			}
		})
	})
}

func TestReconcile_WriteForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.answers(errForbidden)
		s.run(Config{}, func() {
			time.Sleep(5 * time.Minute)
			events := map[string]int{}
			s.set(func() {
				for _, event := range s.events {
					what, reason, _ := strings.Cut(event, ": update status of ")
					events[what+" "+reason[:strings.IndexByte(reason, ':')]]++
				}
			})
			want := map[string]int{
				"GatewayClass istio StatusNotWritten GatewayClass istio": 1, "Gateway gw StatusNotWritten Gateway apps/gw": 1,
				"HTTPRoute route StatusNotWritten HTTPRoute apps/route": 1,
			}
			if !maps.Equal(events, want) {
				t.Errorf("%v, want %v", events, want)
			}
			if n := s.Log.Count("reconcile failed"); n != 1 {
				t.Errorf("%d lines:\n%s", n, &s.Log)
			}
		})
	})
}

func TestReconcile_Skipped(t *testing.T) {
	now := metav1.NewTime(time.Unix(1, 0))
	everything := []string{"gateways apps/gw", "httproutes apps/route", "gatewayclasses /istio"}
	for name, test := range map[string]struct {
		change func(*stub)
		not    []string
	}{
		"unknown tags":     {func(s *stub) { s.synced = false }, everything},
		"another revision": {func(s *stub) { s.mine = "other" }, everything[:2]},
		"accepted class of another revision": {func(s *stub) {
			s.mine = "other"
			changed("istio", func(o *gateway.GatewayClass) {
				o.Status.Conditions = []metav1.Condition{{Type: "Accepted", Status: "True", ObservedGeneration: 1}}
			})(s)
		}, everything},
		"route of another revision":   {changed("route", func(o *route) { o.Labels = map[string]string{"istio.io/rev": "other"} }), nil},
		"deleted Gateway":             {changed("gw", func(o *gateway.Gateway) { o.DeletionTimestamp = &now }), everything[:1]},
		"deleted route":               {changed("route", func(o *route) { o.DeletionTimestamp = &now }), everything[1:2]},
		"deleted class":               {changed("istio", func(o *gateway.GatewayClass) { o.DeletionTimestamp = &now }), everything[2:]},
		"deleted namespace":           {changed("apps", func(o *corev1.Namespace) { o.DeletionTimestamp = &now }), everything[:2]},
		"class of another controller": {changed("istio", func(o *gateway.GatewayClass) { o.Spec.ControllerName = "example.com/other" }), everything},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				test.change(s)
				s.run(Config{}, func() {
					time.Sleep(time.Minute)
					got := s.tried()
					for _, what := range everything {
						want := 1
						for _, not := range test.not {
							if what == not {
								want = 0
							}
						}
						if got["patch "+what] != want {
							t.Errorf("%s: %d writes, want %d", what, got["patch "+what], want)
						}
					}
				})
			})
		})
	}
}

func TestReconcile_CreatesClass(t *testing.T) {
	for name, test := range map[string]struct {
		leave  bool
		answer error
		want   map[string]int
	}{
		"created":    {want: map[string]int{"create gatewayclasses": 1, "patch gatewayclasses /istio": 1}},
		"LeaveClass": {leave: true, want: map[string]int{}},
		"forbidden":  {answer: errForbidden, want: map[string]int{"create gatewayclasses": 10}}, // with back-off
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.remove("gatewayclasses", "gateways", "httproutes")
				s.answers(test.answer)
				s.run(Config{LeaveClass: test.leave}, func() {
					time.Sleep(time.Minute)
					if got := s.tried(); !maps.Equal(got, test.want) {
						t.Errorf("%v, want %v", got, test.want)
					}
					if n := s.Log.Count("create GatewayClass istio"); (n == 1) != (test.answer != nil) {
						t.Errorf("%d lines:\n%s", n, &s.Log)
					}
				})
			})
		})
	}
}

// wantProblems expects a number of Events, and of log lines that a problem is over.
func (s *stub) wantProblems(events, solved int) {
	s.Helper()
	synctest.Wait()
	n := 0
	s.set(func() { n = len(s.events) })
	if n != events || s.Log.Count("status is written completely again") != solved {
		s.Errorf("%d Events, want %d:\n%s", n, events, &s.Log)
	}
}

func TestReconcile_UnknownClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		lost := changed("gw", func(o *gateway.Gateway) { o.Spec.GatewayClassName = "later" })
		lost(s)
		s.run(Config{}, func() {
			s.wantProblems(1, 0)
			s.remove("gateways")
			s.wantProblems(1, 1)
			lost(s)
			s.wantProblems(2, 1)
			s.put(&gateway.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "later", ResourceVersion: "9"}, Spec: gateway.GatewayClassSpec{ControllerName: "example.com/x"}})
			s.wantProblems(2, 2)
		})
	})
}

// A revision label without revision is reported until the revision is installed or the label changes.
func TestReconcile_UnknownRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		label := func(revision string) {
			changed("gw", func(o *gateway.Gateway) { o.Labels = map[string]string{tagging.Label: revision} })(s)
		}
		label("prod")
		s.run(Config{}, func() {
			s.wantProblems(1, 0)
			s.put(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "pilot-prod", Labels: map[string]string{tagging.Label: "prod"}}})
			s.wantProblems(1, 1)
			label("misspelt")
			s.wantProblems(2, 1)
			s.set(func() { s.tags = []string{"misspelt"} })
			s.handler(nil)
			s.wantProblems(2, 2)
			label("elsewhere")
			s.wantProblems(3, 2)
			s.put(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "istiod", Labels: map[string]string{tagging.Label: "a", tagging.TagLabel: "elsewhere"}}})
			s.wantProblems(3, 3)
		})
	})
}

func TestWarm_ReadForbidden(t *testing.T) {
	controllertest.CheckReads(t, "no status of Gateways and routes is written", map[string]string{
		"gatewayclasses": "", "gateways": "", "httproutes": "", "referencegrants": "", "namespaces": "", "services": "",
		"secrets": "type=kubernetes.io/tls", "deployments": gateway.GatewayNameLabelKey, "pods": gateway.GatewayNameLabelKey,
		"horizontalpodautoscalers": gateway.GatewayNameLabelKey, "poddisruptionbudgets": gateway.GatewayNameLabelKey,
		"events": "involvedObject.kind=Service,type=Warning or involvedObject.kind=Pod,reason=FailedMount",
	}, func(t *testing.T) (controllertest.Controller, *controllertest.Stub) {
		s := newStub(t)
		return s.controller(Config{}), s.Stub
	})
}

// A change of the address keeps the times of unchanged conditions.
func TestReconcile_AddressChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		plain := func(o *gateway.Gateway) {
			o.Spec.Listeners[0].Protocol, o.Spec.Listeners[0].TLS = gateway.HTTPProtocolType, nil
		}
		changed("gw", plain)(s)
		s.put(&gateway.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "further", ResourceVersion: "1"}, Spec: gateway.GatewayClassSpec{ControllerName: reconcile.GatewayController}})
		s.run(Config{}, func() {
			synctest.Wait()
			before := s.gateway().Status
			if got := state(before.Conditions, "Programmed"); got != "True/Programmed" {
				t.Errorf("Programmed is %s", got)
			}
			time.Sleep(time.Hour)
			service := func(uid types.UID, ingress ...corev1.LoadBalancerIngress) {
				changed("gw-istio", func(o *corev1.Service) { o.UID, o.Status.LoadBalancer.Ingress = uid, ingress })(s)
			}
			service("u", corev1.LoadBalancerIngress{IP: "192.0.2.8"})
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
					t.Errorf("%s has a new time: %v", c.Type, c)
				}
			}
			want := map[string]int{"patch gateways apps/gw": 2, "patch httproutes apps/route": 1, "patch gatewayclasses /istio": 1, "patch gatewayclasses /further": 1}
			if got := s.tried(); !maps.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
			// While the Service is recreated, the Gateway keeps its addresses.
			check := func(programmed, address string) {
				t.Helper()
				synctest.Wait()
				status := s.gateway().Status
				if got := state(status.Conditions, "Programmed"); got != programmed || len(status.Addresses) != 1 || status.Addresses[0].Value != address {
					t.Errorf("Programmed is %s, the addresses are %v, want %s, %s", got, status.Addresses, programmed, address)
				}
			}
			s.Delete("services", "apps", "gw-istio")
			check("False/Pending", "192.0.2.8")
			service("new")
			check("False/AddressNotAssigned", "192.0.2.8")
			service("new", corev1.LoadBalancerIngress{IP: "192.0.2.9"})
			check("True/Programmed", "192.0.2.9")
		})
	})
}

func TestReconcile_Deletions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.run(Config{LeaveClass: true}, func() {
			s.Delete("namespaces", "", "apps")
			for _, resource := range []string{"gatewayclasses", "httproutes", "gateways"} {
				synctest.Wait()
				s.remove(resource)
			}
			synctest.Wait()
			want := map[string]int{"patch gateways apps/gw": 1, "patch httproutes apps/route": 1, "patch gatewayclasses /istio": 1}
			if got := s.tried(); !maps.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
		})
	})
}

// An entry for a Gateway that only the API server has stays. If the API server does not have it, it is removed.
func TestReconcile_ObsoleteEntry(t *testing.T) {
	for name, test := range map[string]struct {
		answer error
		writes int
	}{
		"cache is late": {nil, 0}, "deleted Gateway": {apierrors.NewNotFound(schema.GroupResource{}, "gw"), 1}, "unknown": {errForbidden, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				changed("route", func(o *route) {
					o.Status.Parents = []gateway.RouteParentStatus{{ParentRef: o.Spec.ParentRefs[0], ControllerName: reconcile.GatewayController}}
				})(s)
				s.remove("gateways")
				s.OnRead(func(r apiserver.Request) apiserver.Fault {
					if r.Verb == "get" && r.Resource == "gateways" {
						return apiserver.Fault{Object: &gateway.Gateway{}, Err: test.answer}
					}
					return apiserver.Fault{}
				})
				s.run(Config{}, func() {
					if n := s.tried()["patch httproutes apps/route"]; n != test.writes {
						t.Errorf("%d writes, want %d", n, test.writes)
					}
				})
			})
		})
	}
}

// A kind of route that the API server does not serve is not supported, until it is served.
func TestReconcile_KindNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		changed("gw", func(o *gateway.Gateway) {
			o.Spec.Listeners[0].Protocol, o.Spec.Listeners[0].TLS = gateway.TCPProtocolType, nil
		})(s)
		var served atomic.Bool
		s.OnRead(func(r apiserver.Request) apiserver.Fault {
			if r.Resource == "tcproutes" && !served.Load() {
				return apiserver.Fault{Err: apierrors.NewNotFound(schema.GroupResource{}, "")}
			}
			return apiserver.Fault{}
		})
		s.run(Config{}, func() {
			for _, want := range []string{"False/UnsupportedProtocol", "True/Accepted"} {
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if got := state(s.gateway().Status.Listeners[0].Conditions, "Accepted"); got != want {
					t.Errorf("the listener is %s, want %s", got, want)
				}
				served.Store(true)
			}
		})
	})
}

func TestReconcile_StatusFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		changed("route", func(o *route) {
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

func TestNamespaces_TakeTurns(t *testing.T) {
	controllertest.CheckTurns(t, func(t *testing.T) (controllertest.Controller, *controllertest.Stub) {
		s := newStub(t)
		for _, namespace := range []string{"many", "few"} {
			s.put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
		}
		return s.controller(Config{}), s.Stub
	}, func(s *controllertest.Stub, namespace, name string) {
		s.Put(&gateway.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: gateway.GatewaySpec{GatewayClassName: "istio"}})
	})
}
