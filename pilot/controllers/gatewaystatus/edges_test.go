package gatewaystatus

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	versioned "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// rights are rules, one by one.
func rights(rules []rbacv1.PolicyRule) (all []string) {
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					all = append(all, verb+" "+group+"/"+resource)
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

// Its rights are these, and no others.
func TestWhichRightsAreNeeded(t *testing.T) {
	var want []string
	for group, resources := range map[string][]string{
		gateway.GroupName: {"gatewayclasses", "gateways", "httproutes", "referencegrants"}, "": {"namespaces", "secrets", "services"}, "apps": {"deployments"},
	} {
		for _, resource := range resources {
			want = append(want, "list "+group+"/"+resource, "watch "+group+"/"+resource)
		}
	}
	for _, resource := range []string{"gatewayclasses", "gateways", "httproutes"} {
		want = append(want, "patch "+gateway.GroupName+"/"+resource+"/status")
	}
	want = append(want, "create /events", "patch /events")
	for makesClass, more := range map[bool][]string{false: nil, true: {"create " + gateway.GroupName + "/gatewayclasses"}} {
		want := append(slices.Clone(want), more...)
		slices.Sort(want)
		if got := rights(ClusterRules(makesClass)); !slices.Equal(got, want) {
			t.Errorf("that makes the class: %v: %q, want %q", makesClass, got, want)
		}
	}
}

// A controller without clients is none.
func TestWithoutAClientThereIsNoController(t *testing.T) {
	s, none := newStub(t), errors.New("no client")
	config := Config{Tags: s, Logger: slog.New(slog.DiscardHandler)}
	if c, err := New(nil, config); err == nil || c != nil || !strings.Contains(err.Error(), "no client was given") {
		t.Errorf("without any: %v, %v", c, err)
	}
	c, err := newController(s, config, func(*rest.Config) (versioned.GatewayV1Interface, error) { return nil, none })
	if c != nil || !errors.Is(err, none) || !strings.Contains(err.Error(), "a client of the Gateway API") {
		t.Errorf("%v, %v", c, err)
	}
}

// What every condition has is the time of its last change, beside what others say.
func TestEveryConditionHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		changed("gw", func(o *gateway.Gateway) {
			o.Status.Conditions = []metav1.Condition{{Type: "Odd", Status: "True", Reason: "Theirs", LastTransitionTime: early}}
		})(s)
		s.run(Config{}, func() {
			status := s.gateway().Status
			if len(status.Conditions) != 3 || status.Conditions[0].Type != "Odd" || len(status.Listeners[0].Conditions) != 4 {
				t.Errorf("the conditions are %+v", status)
			}
			for _, c := range append(status.Conditions, status.Listeners[0].Conditions...) {
				if want := time.Now().Unix(); c.Type != "Odd" && c.LastTransitionTime.Unix() != want {
					t.Errorf("%s has the time %v", c.Type, c.LastTransitionTime)
				}
			}
		})
	})
}

// A certificate that is granted and good serves. A namespace concerns its Gateways, also those without routes.
func TestAGatewayWithoutRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub(t)
		certificate, private := harness.KeyPair(t)
		changed("tls", func(o *corev1.Secret) { o.Data = map[string][]byte{"tls.crt": certificate, "tls.key": private} })(s)
		routes := schema.GroupVersionResource{Group: gateway.GroupName, Version: "v1", Resource: "httproutes"}
		if err := s.api.Tracker().Delete(routes, "apps", "route"); err != nil {
			t.Fatal(err)
		}
		s.run(Config{}, func() {
			if got := stated(s.gateway().Status.Listeners[0].Conditions, "ResolvedRefs"); got != "True/ResolvedRefs" {
				t.Errorf("ResolvedRefs is %s", got)
			}
		})
		s.mine = "later"
		changed("gw", func(o *gateway.Gateway) { o.Spec.Listeners[0].Port = 444 })(s)
		before := s.tried()["patch gateways apps/gw"]
		s.run(Config{}, func() {
			if n := s.tried()["patch gateways apps/gw"] - before; n != 0 {
				t.Errorf("%d writes of another revision's Gateway", n)
			}
			changed("apps", func(o *corev1.Namespace) { o.Labels = map[string]string{"istio.io/rev": "later"} })(s)
			synctest.Wait()
			if n := s.tried()["patch gateways apps/gw"] - before; n != 1 {
				t.Errorf("%d writes after its namespace has become the revision's", n)
			}
		})
	})
}

// A class that cannot be made is tried again and said; one that is made is no failure.
func TestAClassThatCannotBeMade(t *testing.T) {
	for answer, lines := range map[error]int{nil: 0, error(errForbidden): 1} {
		synctest.Test(t, func(t *testing.T) {
			s := newStub(t)
			if err := s.api.Tracker().Delete(schema.GroupVersionResource{Group: gateway.GroupName, Version: "v1", Resource: "gatewayclasses"}, "", "istio"); err != nil {
				t.Fatal(err)
			}
			for _, resource := range []string{"gateways/gw", "httproutes/route"} {
				kind, name, _ := strings.Cut(resource, "/")
				if err := s.api.Tracker().Delete(schema.GroupVersionResource{Group: gateway.GroupName, Version: "v1", Resource: kind}, "apps", name); err != nil {
					t.Fatal(err)
				}
			}
			s.answer = answer
			s.run(Config{}, func() {
				time.Sleep(time.Minute)
				if n := s.log.Count("creating GatewayClass istio"); n != lines {
					t.Errorf("%v: %d lines:\n%s", answer, n, &s.log)
				}
				if n := s.tried()["create gatewayclasses"]; (n > 3) != (lines > 0) || n == 0 {
					t.Errorf("%v: %d tries", answer, n)
				}
			})
		})
	}
}

func TestAddressesAndParametersOfNoKind(t *testing.T) {
	if sameIP("a.example", "b.example") || sameIP("192.0.2.1", "b.example") || !sameIP("2001:db8::1", "2001:db8:0::1") {
		t.Error("which addresses are one is wrong")
	}
	one := []listener{{}}
	for kind, want := range map[gateway.Kind]metav1.ConditionStatus{"": metav1.ConditionTrue, "ConfigMap": metav1.ConditionTrue, "Secret": metav1.ConditionFalse} {
		g := &gateway.Gateway{Spec: gateway.GatewaySpec{Infrastructure: &gateway.GatewayInfrastructure{}}}
		if kind != "" {
			g.Spec.Infrastructure.ParametersRef = &gateway.LocalParametersReference{Kind: kind, Name: "x"}
		}
		if got := acceptance(g, one).Status; got != want {
			t.Errorf("with parameters of kind %q it is accepted: %s", kind, got)
		}
	}
}
