package ingress

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/testutil/controllertest"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

func TestReconcile_Patch(t *testing.T) {
	now, other := metav1.NewTime(time.Unix(1, 0)), "other"
	for name, x := range map[string]struct {
		change func(*networkingv1.Ingress)
		want   int
	}{
		"ours":        {func(*networkingv1.Ingress) {}, 1},
		"deleted":     {func(i *networkingv1.Ingress) { i.DeletionTimestamp = &now }, 0},
		"other class": {func(i *networkingv1.Ingress) { i.Spec.IngressClassName = &other }, 0},
		"no class":    {func(i *networkingv1.Ingress) { i.Spec.IngressClassName = nil }, 0},
		"up to date":  {func(i *networkingv1.Ingress) { i.Status.LoadBalancer.Ingress = []address{ip("192.0.2.1")} }, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStub(t)
			s.Put(changedIngress(x.change))
			s.Put(&networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: other, ResourceVersion: "1"}, Spec: networkingv1.IngressClassSpec{Controller: "example.com/x"}})
			s.answers(errForbidden)
			s.run(s.controller(), func() {})
			patches := s.patches()
			if len(patches) != x.want {
				t.Errorf("%s: %q", name, patches)
			}
			for _, patch := range patches {
				if want := `one status {"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}},"uid":"u"}`; patch != want {
					t.Errorf("%s: %s, want %s", name, patch, want)
				}
			}
		})
	}
}

// A change that affects the addresses or the class causes an attempt during back-off. Other changes
// do not, because they would bypass the back-off.
func TestReconcile_CausedByChange(t *testing.T) {
	label := map[string]string{"changed": "1"}
	app := map[string]string{"app": "gateway"}
	meta := func(namespace, name string, labels map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "u", ResourceVersion: "2", Labels: labels}
	}
	class := "ours"
	external := func(ip string) corev1.NodeStatus {
		return corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.9"}, {Type: corev1.NodeExternalIP, Address: ip}}}
	}
	running := func(m metav1.ObjectMeta, node string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: m, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1"}}
	}
	balanced := &corev1.Service{
		ObjectMeta: meta("home", "gateway", nil), Spec: corev1.ServiceSpec{Selector: app},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.9"}}}},
	}
	for name, test := range map[string]struct {
		before, change runtime.Object
		attempts       int
	}{
		"an Ingress's label":         {nil, &networkingv1.Ingress{ObjectMeta: meta("apps", "one", label), Spec: networkingv1.IngressSpec{IngressClassName: &class}}, 0},
		"an Ingress's status":        {nil, &networkingv1.Ingress{ObjectMeta: meta("apps", "one", nil), Spec: networkingv1.IngressSpec{IngressClassName: &class}, Status: networkingv1.IngressStatus{LoadBalancer: networkingv1.IngressLoadBalancerStatus{Ingress: []address{ip("192.0.2.7")}}}}, 1},
		"a class's label":            {nil, &networkingv1.IngressClass{ObjectMeta: meta("", class, label), Spec: networkingv1.IngressClassSpec{Controller: ControllerName}}, 0},
		"the Service's label":        {nil, &corev1.Service{ObjectMeta: meta("home", "gateway", label), Spec: corev1.ServiceSpec{Selector: app}}, 0},
		"the Service's addresses":    {nil, balanced, 1},
		"a pod's address":            {nil, running(meta("home", "gateway-1", app), "one"), 0},
		"a pod's node":               {nil, running(meta("home", "gateway-1", app), "two"), 1},
		"unrelated pod":              {nil, running(meta("home", "other", label), "one"), 0},
		"new pod":                    {nil, running(meta("home", "gateway-2", app), "one"), 1},
		"new pod, balanced":          {balanced, running(meta("home", "gateway-2", app), "one"), 0},
		"a node's label":             {nil, &corev1.Node{ObjectMeta: meta("", "one", label), Status: external("192.0.2.1")}, 0},
		"a node's address":           {nil, &corev1.Node{ObjectMeta: meta("", "one", nil), Status: external("192.0.2.2")}, 1},
		"a node's address, balanced": {balanced, &corev1.Node{ObjectMeta: meta("", "one", nil), Status: external("192.0.2.2")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStub(t)
				s.answers(errForbidden)
				s.run(s.controller(), func() {
					if test.before != nil {
						s.Put(test.before)
					}
					time.Sleep(2 * time.Minute) // the delay is 30 s now
					synctest.Wait()
					before := len(s.Writes())
					s.Put(test.change)
					synctest.Wait()
					if n := len(s.Writes()) - before; before == 0 || n != test.attempts {
						t.Errorf("%d attempts, then %d, want %d", before, n, test.attempts)
					}
				})
			})
		})
	}
}

// An Ingress follows the addresses of the Service with one write for each change. While the Service is recreated, it keeps them.
func TestReconcile_FollowsService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		balanced := func(uid, version string, ingress ...corev1.LoadBalancerIngress) *corev1.Service {
			return &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: "home", Name: "gateway", UID: types.UID(uid), ResourceVersion: version},
				Status:     corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: ingress}},
			}
		}
		c := s.controller()
		harness.Must(t, c.Warm(t.Context()))
		defer c.Close()
		var want []string
		check := func(step string, more ...string) {
			t.Helper()
			synctest.Wait()
			for _, addresses := range more {
				want = append(want, `one status {"status":{"loadBalancer":{"ingress":`+addresses+`}},"uid":"u"}`)
			}
			if got := s.patches(); !slices.Equal(got, want) {
				t.Errorf("%s: writes\n%q, want\n%q", step, got, want)
			}
		}
		check("before Run")
		s.run(c, func() {
			check("start", `[{"ip":"192.0.2.1"}]`)
			s.Put(balanced("u", "2"))
			check("addresses removed", "null")
			s.Put(balanced("u", "3", corev1.LoadBalancerIngress{IP: "192.0.2.7"}))
			check("addresses", `[{"ip":"192.0.2.7"}]`)
			s.Delete("services", "home", "gateway")
			check("Service deleted")
			s.Put(balanced("new", "5"))
			check("Service recreated")
			s.Put(balanced("new", "6", corev1.LoadBalancerIngress{IP: "192.0.2.8"}))
			check("new addresses", `[{"ip":"192.0.2.8"}]`)
		})
		s.run(c, func() { check("next leader") })
	})
}

// With labels of Pods instead of a Service, an Ingress follows the nodes of the Pods.
func TestReconcile_FollowsPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.Delete("services", "home", "gateway")
		pod := func(version, node string) *corev1.Pod {
			return &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "home", Name: "gateway-1", UID: "u", ResourceVersion: version, Labels: map[string]string{"app": "gateway"}},
				Spec:       corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
			}
		}
		var want []string
		check := func(step, addresses string) {
			t.Helper()
			synctest.Wait()
			want = append(want, `one status {"status":{"loadBalancer":{"ingress":`+addresses+`}},"uid":"u"}`)
			if got := s.patches(); !slices.Equal(got, want) {
				t.Errorf("%s: writes\n%q, want\n%q", step, got, want)
			}
		}
		s.run(s.controllerOf(Config{Service: key{Namespace: "home"}, Pods: map[string]string{"app": "gateway"}}), func() {
			check("start", `[{"ip":"192.0.2.1"}]`)
			s.Put(pod("2", "two"))
			check("other node", `[{"ip":"192.0.2.5"}]`)
			s.Delete("pods", "home", "gateway-1")
			check("no Pod", "null")
			s.Put(pod("3", "one"))
			check("new Pod", `[{"ip":"192.0.2.1"}]`)
		})
	})
}

// Without the Service, Ingresses keep their status.
func TestReconcile_ServiceMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.Delete("services", "home", "gateway")
		s.Put(changedIngress(func(i *networkingv1.Ingress) { i.Status.LoadBalancer.Ingress = []address{ip("192.0.2.9")} }))
		s.answers(errForbidden)
		s.run(s.controller(), func() {
			s.Put(changedIngress(func(i *networkingv1.Ingress) {
				i.ResourceVersion, i.Status.LoadBalancer.Ingress = "3", []address{ip("192.0.2.8")}
			}))
			synctest.Wait()
			if n := len(s.Writes()); n != 0 || s.Log.Count("Service does not exist; Ingresses keep their status") != 1 || s.Log.Count("Service exists now") != 0 {
				t.Errorf("%d attempts, log:\n%s", n, &s.Log)
			}
			s.Put(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "home", Name: "gateway", UID: "u", ResourceVersion: "4"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "gateway"}}})
			synctest.Wait()
			time.Sleep(time.Minute)
			if n := len(s.Writes()); n < 2 || s.Log.Count("Service does not exist; Ingresses keep their status") != 1 || s.Log.Count("Service exists now") != 1 {
				t.Errorf("%d attempts, log:\n%s", n, &s.Log)
			}
		})
	})
}

func TestReconcile_WriteForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		s.answers(errForbidden)
		c := s.controller()
		s.run(c, func() {
			if err := c.Run(t.Context()); !errors.Is(err, reconcile.ErrRunning) {
				t.Errorf("second Run: %v", err)
			}
			time.Sleep(time.Minute)
			want := "one Warning StatusNotWritten update status of Ingress apps/one: "
			if got := s.events.list(); len(got) != 1 || !strings.HasPrefix(got[0], want) {
				t.Errorf("Events: %q", got)
			}
			c.failing(key{Namespace: "apps", Name: "gone"}, errForbidden) // must not panic
			if len(s.Writes()) < 3 || s.Log.Count("reconcile failed", "update status of Ingress apps/one") != 1 {
				t.Errorf("%d attempts, log:\n%s", len(s.Writes()), &s.Log)
			}
		})
	})
}

func TestWarm_ReadForbidden(t *testing.T) {
	controllertest.CheckReads(t, "no status is written", map[string]string{
		"ingresses": "", "ingressclasses": "", "services": "home metadata.name=gateway", "pods": "home", "nodes": "",
	}, func(t *testing.T) (controllertest.Controller, *controllertest.Stub) {
		s := newStub(t)
		return s.controller(), s.Stub
	})
}

// Each problem is reported once for each Ingress.
func TestReconcile_UnknownClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		later := "later"
		lost := func(uid string) *networkingv1.Ingress {
			return &networkingv1.Ingress{
				ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "lost", UID: "1", ResourceVersion: uid}, Spec: networkingv1.IngressSpec{IngressClassName: &later},
			}
		}
		s := newStub(t, lost("1"))
		s.run(s.controller(), func() {
			check := func(events, over int) {
				t.Helper()
				synctest.Wait()
				if n := len(s.events.list()); n != events || s.Log.Count("Ingress problem is solved") != over {
					t.Errorf("%d Events, want %d:\n%s", n, events, &s.Log)
				}
			}
			check(1, 0)
			s.Delete("ingresses", "apps", "lost")
			check(1, 1)
			s.Put(lost("5"))
			check(2, 1)
			s.Put(&networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: later, ResourceVersion: "6"}, Spec: networkingv1.IngressClassSpec{Controller: ControllerName}})
			check(2, 2)
			if all := s.patches(); len(all) == 0 || !strings.HasPrefix(all[len(all)-1], "lost status ") {
				t.Errorf("the Ingress of the new class has no status: %q", all)
			}
		})
	})
}

func TestNamespaces_TakeTurns(t *testing.T) {
	controllertest.CheckTurns(t, func(t *testing.T) (controllertest.Controller, *controllertest.Stub) {
		s := newStub(t)
		return s.controller(), s.Stub
	}, func(s *controllertest.Stub, namespace, name string) {
		i := changedIngress(func(*networkingv1.Ingress) {})
		i.Namespace, i.Name = namespace, name
		s.Put(i)
	})
}
