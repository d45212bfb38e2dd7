package gatewaystatus

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

func TestClassStatus(t *testing.T) {
	class := newClass()
	class.Generation = 3
	status := classStatus(class)
	if got := stated(t, status.Conditions, gateway.GatewayClassConditionStatusAccepted, 3); got != "True/Accepted" {
		t.Errorf("Accepted is %s", got)
	}
	if !slices.IsSortedFunc(status.SupportedFeatures, func(a, b gateway.SupportedFeature) int { return slices.Compare([]byte(a.Name), []byte(b.Name)) }) || len(status.SupportedFeatures) == 0 {
		t.Errorf("features are %v", status.SupportedFeatures)
	}
	var names []string
	for _, f := range status.SupportedFeatures {
		names = append(names, string(f.Name))
	}
	want := "Gateway GatewayAddressEmpty GatewayInfrastructure GatewayPort8080 HTTPRoute HTTPRouteParentRefPort ReferenceGrant TCPRoute TLSRoute TLSRouteModeTerminate UDPRoute"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("the features are %s, want %s", got, want)
	}
	class.Spec.ParametersRef = &gateway.ParametersReference{}
	if got := stated(t, classStatus(class).Conditions, gateway.GatewayClassConditionStatusAccepted, 3); got != "False/InvalidParameters" {
		t.Errorf("with parameters Accepted is %s", got)
	}
}

func TestOurs(t *testing.T) {
	foreign := newClass()
	foreign.Spec.ControllerName = "example.com/other"
	for name, test := range map[string]struct {
		class    string
		existing *gateway.GatewayClass
		revision string
		want     bool
	}{
		"exists":           {reconcile.GatewayClass, newClass(), "stable", true},
		"missing":          {reconcile.GatewayClass, nil, "stable", true},
		"other revision":   {reconcile.GatewayClass, nil, "canary", false},
		"other controller": {reconcile.GatewayClass, foreign, "stable", false},
		"other class":      {"none", newClass(), "stable", false},
	} {
		g := newGateway(t, plain)
		g.Spec.GatewayClassName = gateway.ObjectName(test.class)
		v := usual(t, g)
		v.revision = test.revision
		v.objects = slices.DeleteFunc(v.objects, func(o metav1.Object) bool { _, is := o.(*gateway.GatewayClass); return is })
		if test.existing != nil {
			v.objects = append(v.objects, test.existing)
		}
		if got := ours(v, g); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestUnknownClass(t *testing.T) {
	for class, want := range map[string]bool{"istio": false, "other": false, "nowhere": true} {
		for revision, ours := range map[string]bool{"stable": true, "canary": false} {
			for _, exists := range []bool{true, false} {
				g := newGateway(t, plain)
				g.Spec.GatewayClassName = gateway.ObjectName(class)
				v := usual(t, g)
				v.revision = revision
				if !exists {
					v.objects = slices.DeleteFunc(v.objects, func(o metav1.Object) bool { return o.GetName() == reconcile.GatewayClass })
				}
				p := unknownClass(v, g)
				if got := p != nil; got != (want && ours) || got && (p.Reason != reasonUnknownClass || !strings.Contains(p.Message, class)) {
					t.Errorf("class %s, revision %s, istio exists %v: %v", class, revision, exists, p)
				}
			}
		}
	}
}

func TestUnknownRevision(t *testing.T) {
	for name, test := range map[string]struct {
		label, namespace, class, revision string
		want                              bool
	}{
		"unknown":                       {"prod", "", reconcile.GatewayClass, "stable", true},
		"unknown in the namespace":      {"", "prod", reconcile.GatewayClass, "stable", true},
		"known":                         {"canary", "prod", reconcile.GatewayClass, "stable", false},
		"no label":                      {"", "", reconcile.GatewayClass, "stable", false},
		"not the default revision":      {"prod", "", reconcile.GatewayClass, "canary", false},
		"class of another controller":   {"prod", "", "other", "stable", false},
		"class that does not exist yet": {"prod", "", "none", "stable", false},
	} {
		g := gatewayOf(t, "gw", test.class, test.label)
		v := usual(t, g)
		v.revision = test.revision
		if test.namespace != "" {
			v.namespace("infra").Labels = map[string]string{tagging.Label: test.namespace}
		}
		p := unknownRevision(v, g)
		if got := p != nil; got != test.want || got && (p.Reason != reasonUnknownRevision || !strings.Contains(p.Message, "prod")) {
			t.Errorf("%s: %v", name, p)
		}
	}
}

func TestJudged(t *testing.T) {
	for name, test := range map[string]struct {
		conditions []metav1.Condition
		want       bool
	}{
		"none":       {nil, false},
		"default":    {[]metav1.Condition{{Type: "Accepted", Status: "Unknown", ObservedGeneration: 3}}, false},
		"outdated":   {[]metav1.Condition{{Type: "Accepted", Status: "True", ObservedGeneration: 2}}, false},
		"other type": {[]metav1.Condition{{Type: "SupportedVersion", Status: "True", ObservedGeneration: 3}}, false},
		"accepted":   {[]metav1.Condition{{Type: "Accepted", Status: "True", ObservedGeneration: 3}}, true},
		"rejected":   {[]metav1.Condition{{Type: "Accepted", Status: "False", ObservedGeneration: 3}}, true},
	} {
		class := newClass()
		class.Generation, class.Status.Conditions = 3, test.conditions
		if got := judged(class); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
