package gatewaydeploy

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

func TestNames(t *testing.T) {
	long := strings.Repeat("a", 57)
	for name, c := range map[string]struct {
		change            []func(*gateway.Gateway)
		workload, account string
		reason            string
	}{
		"by default":      {nil, "web-istio", "web-istio", ""},
		"another name":    {[]func(*gateway.Gateway){annotated(NameOverride, "edge")}, "edge", "web-istio", ""},
		"another account": {[]func(*gateway.Gateway){annotated(accountOverride, "sa")}, "web-istio", "sa", ""},
		"empty overrides": {[]func(*gateway.Gateway){annotated(NameOverride, ""), annotated(accountOverride, "")}, "web-istio", "web-istio", ""},
		"63 characters":   {[]func(*gateway.Gateway){named(long)}, long + "-istio", long + "-istio", ""},
		"64 characters":   {[]func(*gateway.Gateway){named(long + "b")}, strings.Repeat("a", 54) + "-e30aa4fa", long + "b-istio", ""},
		"dots":            {[]func(*gateway.Gateway){named("shop.example.com")}, label("shop.example.com-istio"), "shop.example.com-istio", ""},
		"253 characters":  {[]func(*gateway.Gateway){named(strings.Repeat("a", 253))}, label(strings.Repeat("a", 253) + "-istio"), short(strings.Repeat("a", 253)+"-istio", 253), ""},
		"name in Unicode": {[]func(*gateway.Gateway){annotated(NameOverride, "tür")}, "", "", reasonInvalidName},
		"a class of 64 characters": {[]func(*gateway.Gateway){func(gw *gateway.Gateway) {
			gw.Spec.GatewayClassName = gateway.ObjectName(strings.Repeat("c", 64))
		}, annotated(NameOverride, "edge"), annotated(accountOverride, "sa")}, "edge", "sa", ""},
		"invalid name":                   {[]func(*gateway.Gateway){annotated(NameOverride, "No_Name")}, "", "", reasonInvalidName},
		"invalid account":                {[]func(*gateway.Gateway){annotated(accountOverride, "No_Name")}, "", "", reasonInvalidName},
		"a name that breaks out of YAML": {[]func(*gateway.Gateway){annotated(NameOverride, "a\"\nkind: Secret")}, "", "", reasonInvalidName},
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t, c.change...)
			p.Class = &gateway.GatewayClass{Spec: gateway.GatewayClassSpec{ControllerName: reconcile.GatewayController}}
			plan := p.plan()
			if c.reason != "" {
				if plan.Problem == nil || plan.Problem.Reason != c.reason || !plan.Version {
					t.Errorf("the plan is %+v, want %s, and the version", plan, c.reason)
				}
				return
			}
			if plan.Problem != nil {
				t.Fatal(plan.Problem)
			}
			for kind, want := range map[Kind]string{ServiceAccount: c.account, Service: c.workload, Deployment: c.workload} {
				if got := plan.document(kind).GetName(); got != want {
					t.Errorf("the %s is called %q, want %q", kind, got, want)
				}
			}
		})
	}
}

// A Gateway can have the name to which the label of a longer name is shortened.
func TestNames_ShortenedLabel(t *testing.T) {
	first := play(t, named(strings.Repeat("a", 80)))
	first.settle()
	second := play(t, named(LabelValue(first.Gateway.Name)), annotated(NameOverride, WorkloadName(first.Gateway)))
	second.Gateway.UID = "uid-2"
	second.objects = first.objects
	if got := first.plan().actions(); got != "leave leave leave" {
		t.Errorf("the first Gateway: %s", got)
	}
	if got := second.plan().actions(); got != "create leave:NameTaken leave:NameTaken" {
		t.Errorf("the second Gateway: %s", got)
	}
	// The Services would also select the Pods of each other.
	annotated(NameOverride, "")(second.Gateway)
	second.Gateway.CreationTimestamp = metav1.Unix(1, 0)
	both := []*gateway.Gateway{second.Gateway, first.Gateway}
	first.SameLabel = both
	second.SameLabel = both
	if got := first.plan().actions(); got != "leave leave leave" {
		t.Errorf("the first of two Gateways: %s", got)
	}
	plan := second.plan()
	if plan.actions() != "" || plan.Problem == nil || plan.Problem.Reason != reasonNameTaken || !strings.Contains(plan.Problem.Message, "Gateway "+first.Gateway.Name+" has the same value") {
		t.Errorf("the second of two Gateways: %s, %v", plan.actions(), plan.Problem)
	}
}

// listeners returns listeners of "name:port" or "name:port/UDP".
func listeners(t *testing.T, texts ...string) (all []gateway.Listener) {
	t.Helper()
	for _, text := range texts {
		called, text, _ := strings.Cut(text, ":")
		text, transport, _ := strings.Cut(text, "/")
		number, err := strconv.Atoi(text)
		harness.Must(t, err)
		all = append(all, gateway.Listener{
			Name: gateway.SectionName(called), Protocol: gateway.ProtocolType(cmp.Or(transport, "HTTPS")), Port: gateway.PortNumber(number),
		})
	}
	return all
}

// A port number can be used once for each transport protocol, and names are unique across them.
func TestPortsOf(t *testing.T) {
	long := strings.Repeat("x", 70)
	for name, c := range map[string]struct {
		listeners []string // name:port or name:port/protocol
		want      string
	}{
		"only UDP":                      {[]string{"dns:53/UDP"}, "status-port:15021 dns:53/UDP=udp"},
		"with TCP of the same number":   {[]string{"tcp:53/TCP", "udp:53/UDP"}, "status-port:15021 tcp:53 udp:53/UDP=udp"},
		"HTTP/3":                        {[]string{"web:443", "quic:443/UDP"}, "status-port:15021 web:443 quic:443/UDP=udp"},
		"two UDP of one number":         {[]string{"a:53/UDP", "b:53/UDP"}, "status-port:15021 a:53/UDP=udp"},
		"the status port's UDP number":  {[]string{"u:15021/UDP"}, "status-port:15021 u:15021/UDP=udp"},
		"one name after cutting":        {[]string{"a.b:53/TCP", "a-b:53/UDP"}, "status-port:15021 a-b:53 a-b-53:53/UDP=udp"},
		"none":                          {nil, "status-port:15021"},
		"one":                           {[]string{"http:80"}, "status-port:15021 http:80"},
		"two of one number":             {[]string{"a:80", "b:80"}, "status-port:15021 a:80"},
		"names that differ by a dot":    {[]string{"a.b:80", "a-b:81"}, "status-port:15021 a-b:80 a-b-81:81"},
		"the status port's name":        {[]string{"status-port:80"}, "status-port:15021 status-port-80:80"},
		"the status port's number":      {[]string{"http:15021", "b:80"}, "status-port:15021 b:80"},
		"too long":                      {[]string{long + ":80"}, "status-port:15021 " + long[:63] + ":80"},
		"too long with a common prefix": {[]string{long + "a:80", long + "b:81"}, "status-port:15021 " + long[:63] + ":80 " + long[:60] + "-81:81"},
		"collision with a suffix":       {[]string{"a-81:80", "a:82", "a:81"}, "status-port:15021 a-81:80 a:82 a-81-1:81"},
		"cut at a hyphen":               {[]string{long[:62] + "-z:80"}, "status-port:15021 " + long[:62] + ":80"},
		"only separators":               {[]string{"..:80"}, "status-port:15021 port-80:80"},
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t, func(gw *gateway.Gateway) { gw.Spec.Listeners = listeners(t, c.listeners...) })
			var got []string
			for _, port := range portsOf(p.Gateway) {
				text := fmt.Sprintf("%s:%d", port.Name, port.Port)
				if port.Protocol == corev1.ProtocolUDP {
					text += "/UDP=" + *port.AppProtocol
				}
				if got = append(got, text); port.TargetPort.IntVal != port.Port {
					t.Errorf("%s has the target %v", text, port.TargetPort)
				}
			}
			if all := strings.Join(got, " "); all != c.want {
				t.Errorf("the ports are %s, want %s", all, c.want)
			}
		})
	}
}

// Keys of GitOps tools on a Gateway are not copied: a prune would delete the objects.
func TestMetadata(t *testing.T) {
	for key, c := range map[string]struct{ own, given, pods bool }{
		"app":                              {false, true, true},
		"example.com/app":                  {false, true, true},
		"istio.io/rev":                     {true, true, true},
		"topology.istio.io/network":        {true, true, true},
		"proxy.istio.io/config":            {true, true, true},
		"networking.istio.io/exportTo":     {true, true, false},
		serviceTypeOverride:                {false, true, true},
		NameOverride:                       {},
		ManagedLabel:                       {},
		"noistio.io/key":                   {false, true, true},
		gateway.GroupName + "/other":       {},
		gateway.GatewayNameLabelKey:        {},
		"applyset.kubernetes.io/part-of":   {},
		"argocd.argoproj.io/tracking-id":   {},
		"kustomize.toolkit.fluxcd.io/name": {},
		"meta.helm.sh/release-name":        {},
		"config.k8s.io/owning-inventory":   {},
		"kapp.k14s.io/app":                 {},
		"objectset.rio.cattle.io/hash":     {},
		corev1.LastAppliedConfigAnnotation: {},
		appliedAnnotation:                  {},
		"container.apparmor.security.beta.kubernetes.io/istio-proxy": {},
		"app.kubernetes.io/managed-by":                               {false, true, true},
		"service.beta.kubernetes.io/internal":                        {false, true, true},
	} {
		values := map[string]string{key: "v"}
		objects, pods := metadata(values, nil)
		if (objects[key] != "") != c.own || (pods[key] != "") != (c.own && c.pods) {
			t.Errorf("%s of a Gateway: objects %v, pods %v", key, objects, pods)
		}
		if objects, pods = metadata(nil, values); (objects[key] != "") != c.given || (pods[key] != "") != c.given {
			t.Errorf("%s of infrastructure: objects %v, pods %v", key, objects, pods)
		}
	}
	if objects, _ := metadata(map[string]string{"istio.io/rev": "a"}, map[string]string{"istio.io/rev": "b"}); objects["istio.io/rev"] != "b" {
		t.Errorf("infrastructure has no precedence: %v", objects)
	}
}

// Labels and annotations are copied to all objects. Those of other domains do not count.
func TestCrowded(t *testing.T) {
	many := func(domain string, n int) map[string]string {
		all := map[string]string{}
		for i := range n {
			all[fmt.Sprintf("%s/%d", domain, i)] = "a"
		}
		return all
	}
	for _, test := range []struct {
		labels, annotations map[string]string
		problem             string
	}{
		{many("a.istio.io", 100), many("istio.io", maxCopied-100), ""},
		{many("example.com", 1000), many("gateway.istio.io", 1000), ""},
		{many("istio.io", 1), many("a.istio.io", maxCopied), "257 labels and annotations"},
	} {
		plan := play(t, func(gw *gateway.Gateway) { gw.Labels, gw.Annotations = test.labels, test.annotations }).plan()
		if test.problem == "" && (plan.Problem != nil || len(plan.Steps) == 0) {
			t.Errorf("%d labels, %d annotations: %+v", len(test.labels), len(test.annotations), plan)
		}
		if test.problem != "" && (plan.Problem == nil || plan.Problem.Reason != ReasonInvalidParameters || !strings.Contains(plan.Problem.Message, test.problem)) {
			t.Errorf("%d labels, %d annotations: problem %v", len(test.labels), len(test.annotations), plan.Problem)
		}
	}
}

func TestMetadata_OfObjects(t *testing.T) {
	plan := play(t, func(gw *gateway.Gateway) {
		gw.Spec.Infrastructure = &gateway.GatewayInfrastructure{
			Labels:      map[gateway.LabelKey]gateway.LabelValue{"team": "a", gateway.GatewayNameLabelKey: "stolen"},
			Annotations: map[gateway.AnnotationKey]gateway.AnnotationValue{"cost": "b: \"c\"\n- d"},
		}
	}).plan()
	for _, kind := range rendered {
		o := plan.document(kind)
		if o.GetLabels()["team"] != "a" || o.GetLabels()[gateway.GatewayNameLabelKey] != "web" || o.GetAnnotations()["cost"] != "b: \"c\"\n- d" {
			t.Errorf("%s has %v and %v", kind, o.GetLabels(), o.GetAnnotations())
		}
	}
	labels, _, _ := unstructured.NestedStringMap(plan.document(Deployment).Object, "spec", "template", "metadata", "labels")
	if labels["team"] != "a" || labels[gateway.GatewayNameLabelKey] != "web" || labels[ManagedLabel] != ManagedBy {
		t.Errorf("the Pods have %v", labels)
	}
}

func TestLabel(t *testing.T) {
	for _, name := range []string{"a", "a.b", "a-b", strings.Repeat("a.", 40), strings.Repeat("a-", 120)} {
		if wrong := validation.IsDNS1123Label(label(name)); len(wrong) > 0 {
			t.Errorf("%s: %s, %v", name, label(name), wrong)
		}
	}
	if label("a.b-c") == label("a-b.c") || LabelValue(strings.Repeat("a", 64)) == LabelValue(strings.Repeat("a", 65)) || LabelValue("a.b") != "a.b" {
		t.Error("different names have the same label, or a valid name changes")
	}
}
