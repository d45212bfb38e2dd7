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

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8stesting "k8s.io/client-go/testing"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

var errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "one", errors.New("no right"))

// A change that a status depends on is looked at when it comes, also while its write waits out a back-off; any other is not: it
// would go past that.
func TestWhichChangesCauseATry(t *testing.T) {
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
		"a route's annotation":     {change: changed("route", func(o *gateway.HTTPRoute) { o.Annotations = note })},
		"a route's backend":        {changed("route", func(o *gateway.HTTPRoute) { o.Spec.Rules = nil }), 1, 1, 0},
		"a grant's annotation":     {change: changed("grant", func(o *gateway.ReferenceGrant) { o.Annotations = note })},
		"a grant":                  {changed("grant", func(o *gateway.ReferenceGrant) { o.Spec.To = nil }), 1, 1, 0},
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
		"a Deployment's note":     {change: changed("gw-istio", func(o *appsv1.Deployment) { o.Annotations = note })},
		"a Deployment's replicas": {change: changed("gw-istio", func(o *appsv1.Deployment) { o.Spec.Replicas = new(int32) })},
		"a Deployment's status":   {changed("gw-istio", func(o *appsv1.Deployment) { o.Status.AvailableReplicas = 0 }), 1, 0, 0},
		"a Deployment's owner":    {changed("gw-istio", func(o *appsv1.Deployment) { o.OwnerReferences = nil }), 1, 0, 0},
		"tags":                    {func(s *stub) { s.handler(nil) }, 1, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.answer = errForbidden
				s.run(Config{}, func() {
					time.Sleep(2 * time.Minute) // the back-off is half a minute by then
					synctest.Wait()
					before := s.tried()
					test.change(s)
					synctest.Wait()
					after := s.tried()
					for what, want := range map[string]int{"gateways apps/gw": test.gateway, "httproutes apps/route": test.route, "gatewayclasses /istio": test.class} {
						if n := after["patch "+what] - before["patch "+what]; before["patch "+what] == 0 || n != want {
							t.Errorf("%s: %d tries, and then %d, want %d", what, before["patch "+what], n, want)
						}
					}
				})
			})
		})
	}
}

// Each status is one write, and no further one while nothing changes; what fails is said once, on the object.
func TestStatusesAreWrittenOnce(t *testing.T) {
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
			g, err := s.api.GatewayV1().Gateways("apps").Get(t.Context(), "gw", metav1.GetOptions{})
			if err != nil || len(g.Status.Conditions) < 2 || len(g.Status.Addresses) != 1 || len(g.Status.Listeners) != 1 {
				t.Errorf("%v, the Gateway says %+v", err, g.Status)
			}
			route, err := s.api.GatewayV1().HTTPRoutes("apps").Get(t.Context(), "route", metav1.GetOptions{})
			if err != nil || len(route.Status.Parents) != 1 {
				t.Errorf("%v, the route says %+v", err, route.Status)
			}
			if len(s.events) > 0 || s.log.String() != "" {
				t.Errorf("it says %q\n%s", s.events, &s.log)
			}
		})
	})
}

func TestFailedStatusesAreSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.answer = errForbidden
		s.run(Config{}, func() {
			time.Sleep(5 * time.Minute)
			said := map[string]int{}
			s.set(func() {
				for _, event := range s.events {
					what, why, _ := strings.Cut(event, ": writing the status of ")
					said[what+" "+why[:strings.IndexByte(why, ':')]]++
				}
			})
			want := map[string]int{
				"GatewayClass istio StatusNotWritten GatewayClass istio": 1, "Gateway gw StatusNotWritten Gateway apps/gw": 1,
				"HTTPRoute route StatusNotWritten HTTPRoute apps/route": 1,
			}
			if !maps.Equal(said, want) {
				t.Errorf("%v, want %v", said, want)
			}
			if n := s.log.Count("reconcile failed"); n != 1 {
				t.Errorf("%d lines:\n%s", n, &s.log)
			}
		})
	})
}

// Of an object that has gone while its write failed there is nobody to tell.
func TestAWriteThatFailsForWhatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		c := s.controller(Config{})
		if err := c.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for _, name := range []string{"gone", "gw", "route", "istio"} {
			for _, kind := range []string{gatewayKind, routeKind, classKind} {
				namespace := "apps"
				if kind == classKind {
					namespace = ""
				}
				c.failing(key{kind, namespace, name}, errForbidden)
			}
		}
		said := strings.Join(s.events, "\n")
		for _, want := range []string{"Gateway gw Status", "HTTPRoute route Status", "GatewayClass istio Status"} {
			if strings.Count(said, want) != 1 || len(s.events) != 3 {
				t.Errorf("Events:\n%s", said)
			}
		}
	})
}

// Nothing is written before the tags are known, for what is not the revision's, nor for what is going.
func TestWhatGetsNoStatus(t *testing.T) {
	now := metav1.NewTime(time.Unix(1, 0))
	everything := []string{"gateways apps/gw", "httproutes apps/route", "gatewayclasses /istio"}
	for name, test := range map[string]struct {
		change func(*stub)
		not    []string
	}{
		"unknown tags":              {func(s *stub) { s.synced = false }, everything},
		"another revision":          {func(s *stub) { s.mine = "other" }, everything},
		"another revision's route":  {changed("route", func(o *gateway.HTTPRoute) { o.Labels = map[string]string{"istio.io/rev": "other"} }), everything[1:2]},
		"a Gateway that is going":   {changed("gw", func(o *gateway.Gateway) { o.DeletionTimestamp = &now }), everything[:1]},
		"a route that is going":     {changed("route", func(o *gateway.HTTPRoute) { o.DeletionTimestamp = &now }), everything[1:2]},
		"a class that is going":     {changed("istio", func(o *gateway.GatewayClass) { o.DeletionTimestamp = &now }), everything[2:]},
		"a namespace that is going": {changed("apps", func(o *corev1.Namespace) { o.DeletionTimestamp = &now }), everything[:2]},
		"another's class":           {changed("istio", func(o *gateway.GatewayClass) { o.Spec.ControllerName = "example.com/other" }), everything},
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

// The class istio is made where it is missing, unless others make it; no other class is.
func TestTheClassIsMade(t *testing.T) {
	for leave, want := range map[bool]map[string]int{
		false: {"create gatewayclasses": 1, "patch gatewayclasses /istio": 1}, true: {},
	} {
		t.Run(fmt.Sprint("left to others: ", leave), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				for _, resource := range []string{"gatewayclasses/istio", "gateways/gw", "httproutes/route"} {
					kind, name, _ := strings.Cut(resource, "/")
					namespace := "apps"
					if kind == "gatewayclasses" {
						namespace = ""
					}
					if err := s.api.Tracker().Delete(schema.GroupVersionResource{Group: gateway.GroupName, Version: "v1", Resource: kind}, namespace, name); err != nil {
						t.Fatal(err)
					}
				}
				s.run(Config{LeaveClass: leave}, func() {
					time.Sleep(time.Minute)
					if got := s.tried(); !maps.Equal(got, want) {
						t.Errorf("%v, want %v", got, want)
					}
				})
			})
		})
	}
}

// A Gateway of an unknown class is told so once, that it is over too, and anew when another has its name.
func TestAnUnknownClassIsSaidOfEachGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		lost := changed("gw", func(o *gateway.Gateway) { o.Spec.GatewayClassName = "later" })
		lost(s)
		s.run(Config{}, func() {
			said := func(events, over int) {
				t.Helper()
				synctest.Wait()
				n := 0
				s.set(func() { n = len(s.events) })
				if n != events || s.log.Count("the status can be written again") != over {
					t.Errorf("%d Events, want %d:\n%s", n, events, &s.log)
				}
			}
			said(1, 0)
			gateways := schema.GroupVersionResource{Group: gateway.GroupName, Version: "v1", Resource: "gateways"}
			if err := s.api.Tracker().Delete(gateways, "apps", "gw"); err != nil {
				t.Fatal(err)
			}
			said(1, 1)
			lost(s)
			said(2, 1)
			s.put(&gateway.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "later", ResourceVersion: "9"}, Spec: gateway.GatewayClassSpec{ControllerName: "example.com/x"}})
			said(2, 2)
		})
	})
}

// Each kind that may not be read is named, with what is not done meanwhile.
func TestWhichKindsMayNotBeRead(t *testing.T) {
	for kind, only := range map[string]string{
		"gatewayclasses": "", "gateways": "", "httproutes": "", "referencegrants": "", "namespaces": "", "services": "",
		"secrets": "type=kubernetes.io/tls", "deployments": gateway.GatewayNameLabelKey,
	} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				forbid := func(f *k8stesting.Fake) {
					f.PrependReactor("list", kind, func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, errForbidden })
					f.PrependWatchReactor(kind, k8stesting.DefaultWatchReactor(nil, errForbidden))
				}
				forbid(&s.core.Fake)
				forbid(&s.api.Fake)
				c := s.controller(Config{})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := c.Warm(ctx); err == nil || !strings.Contains(err.Error(), kind) || c.Problem() == nil {
					t.Errorf("it is warm, or does not say why not: %v", err)
				}
				c.Close()
				if s.log.Count("permission denied", " "+kind, "no status of Gateways and routes is written") != 1 {
					t.Errorf("it says:\n%s", &s.log)
				}
				for _, action := range append(s.core.Actions(), s.api.Actions()...) {
					list, ok := action.(k8stesting.ListAction)
					if !ok || action.GetResource().Resource != kind {
						continue
					}
					if by := list.GetListRestrictions(); by.Fields.String()+by.Labels.String() != only {
						t.Errorf("they are listed by %q and %q", by.Fields, by.Labels)
					}
				}
			})
		})
	}
}
