package gatewaydeploy

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// played is a View whose objects have owners of fields as an API server notes them.
type played struct {
	View
	t       *testing.T
	objects map[string]metav1.Object
	configs map[string]*corev1.ConfigMap
}

func play(t *testing.T, change ...func(*gateway.Gateway)) *played {
	gw := &gateway.Gateway{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "uid-1", ResourceVersion: "7"},
		Spec: gateway.GatewaySpec{
			GatewayClassName: DefaultClass,
			Listeners:        []gateway.Listener{{Name: "http", Port: 8080, Protocol: gateway.HTTPProtocolType}},
		},
	}
	for _, do := range change {
		do(gw)
	}
	p := &played{t: t, objects: map[string]metav1.Object{}, configs: map[string]*corev1.ConfigMap{}}
	p.View = View{
		Gateway: gw, IsMine: func(metav1.ObjectMeta) bool { return true },
		Template: DefaultTemplate(), Image: "proxy", Revision: "canary",
		Parameters: func(name string) *corev1.ConfigMap { return p.configs[name] },
		Existing:   func(kind Kind, name string) metav1.Object { return p.objects[string(kind)+"/"+name] },
	}
	return p
}

// put stores an object whose fields have those owners; by is what each of them wrote, in turn.
func (p *played) put(kind Kind, by ...write) metav1.Object {
	p.t.Helper()
	server := managedfieldstest.NewTestFieldManager(applyconfigurations.NewTypeConverter(scheme.Scheme), known[kind].gvk)
	for _, w := range by {
		o := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(w.document)}
		o.SetResourceVersion("")
		var err error
		if w.apply {
			err = server.Apply(o, w.manager, true)
		} else {
			err = server.Update(o, w.manager)
		}
		if err != nil {
			p.t.Fatal(err)
		}
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(server.Live())
	if err != nil {
		p.t.Fatal(err)
	}
	o, err := kind.typed(content)
	if err != nil {
		p.t.Fatal(err)
	}
	o.SetManagedFields(server.ManagedFields())
	o.SetResourceVersion("42")
	p.objects[string(kind)+"/"+o.GetName()] = o
	return o
}

// write is one that an API server took.
type write struct {
	manager  string
	apply    bool
	document map[string]any
}

// settle carries out what the plan says, as creates.
func (p *played) settle() {
	p.t.Helper()
	for _, s := range p.plan().Steps {
		if s.Action == Create {
			p.put(s.Kind, write{ControllerName, false, s.Document})
		}
	}
}

func (p *played) plan() Plan {
	p.t.Helper()
	plan := Decide(p.View)
	if plan.Problem != nil && len(plan.Steps) > 0 {
		p.t.Errorf("a plan with a problem has steps: %+v", plan)
	}
	return plan
}

// actions are those of the steps, in the order of Kinds.
func (plan Plan) actions() string {
	var all []string
	for _, s := range plan.Steps {
		said := string(s.Action)
		if s.Claim {
			said += "+claim"
		}
		if s.Problem != nil {
			said += ":" + s.Problem.Reason
		}
		all = append(all, said)
	}
	return strings.Join(all, " ")
}

func (plan Plan) document(kind Kind) *unstructured.Unstructured {
	for _, s := range plan.Steps {
		if s.Kind == kind {
			return &unstructured.Unstructured{Object: s.Document}
		}
	}
	return &unstructured.Unstructured{}
}

// edited is a copy of a document with one field set.
func edited(document map[string]any, value any, path ...string) map[string]any {
	to := runtime.DeepCopyJSON(document)
	if err := unstructured.SetNestedField(to, value, path...); err != nil {
		panic(err)
	}
	return to
}

func annotated(key, value string) func(*gateway.Gateway) {
	return func(gw *gateway.Gateway) {
		if gw.Annotations == nil {
			gw.Annotations = map[string]string{}
		}
		gw.Annotations[key] = value
	}
}

func named(name string) func(*gateway.Gateway) {
	return func(gw *gateway.Gateway) { gw.Name = name }
}

func TestWhichGatewaysAreServed(t *testing.T) {
	class := func(controller string) *gateway.GatewayClass {
		return &gateway.GatewayClass{Spec: gateway.GatewayClassSpec{ControllerName: gateway.GatewayController(controller)}}
	}
	hostname, ip := gateway.HostnameAddressType, gateway.IPAddressType
	address := func(of ...*gateway.AddressType) func(*gateway.Gateway) {
		return func(gw *gateway.Gateway) {
			for _, kind := range of {
				gw.Spec.Addresses = append(gw.Spec.Addresses, gateway.GatewaySpecAddress{Type: kind, Value: "192.0.2.1"})
			}
		}
	}
	other := func(gw *gateway.Gateway) { gw.Spec.GatewayClassName = "other" }
	for name, c := range map[string]struct {
		change  func(*gateway.Gateway)
		class   *gateway.GatewayClass
		others  bool
		skipped string
		version bool
	}{
		"the default class needs no object":         {version: true},
		"a class of ours":                           {change: other, class: class(ControllerName), version: true},
		"no such class":                             {change: other, skipped: "no class"},
		"a class of another controller":             {change: other, class: class("example.com/c"), skipped: "another controller"},
		"the default class, taken by another":       {class: class("example.com/c"), skipped: "another controller"},
		"another revision's":                        {others: true, skipped: "another revision"},
		"being deleted":                             {change: func(gw *gateway.Gateway) { gw.DeletionTimestamp = &metav1.Time{} }, skipped: "deleted"},
		"an address without a type":                 {change: address(nil), version: true},
		"an IP address":                             {change: address(&ip), version: true},
		"a host name":                               {change: address(&hostname), skipped: "addresses"},
		"two addresses":                             {change: address(&ip, &ip), skipped: "addresses"},
		"the controller version of an old istiod":   {change: annotated(versionAnnotation, "1"), version: true},
		"our controller version":                    {change: annotated(versionAnnotation, "5")},
		"a larger controller version":               {change: annotated(versionAnnotation, "6"), skipped: "controller version, 6"},
		"a controller version that is no number":    {change: annotated(versionAnnotation, "v5"), skipped: "controller version, v5"},
		"an empty controller version":               {change: annotated(versionAnnotation, ""), skipped: "controller version"},
		"a controller version larger than any int":  {change: annotated(versionAnnotation, "99999999999999999999"), skipped: "controller version"},
		"a negative controller version is smaller":  {change: annotated(versionAnnotation, "-1"), version: true},
		"an override does not matter to who serves": {change: annotated(NameOverride, "edge"), version: true},
	} {
		t.Run(name, func(t *testing.T) {
			var changes []func(*gateway.Gateway)
			if c.change != nil {
				changes = append(changes, c.change)
			}
			p := play(t, changes...)
			p.Class = c.class
			p.IsMine = func(metav1.ObjectMeta) bool { return !c.others }
			plan := p.plan()
			if c.skipped == "" && (plan.Skipped != "" || len(plan.Steps) != 3 || plan.Problem != nil) ||
				c.skipped != "" && (!strings.Contains(plan.Skipped, c.skipped) || len(plan.Steps) != 0 || plan.Problem != nil) {
				t.Errorf("the plan is %+v, want skipped %q", plan, c.skipped)
			}
			if plan.Version != c.version {
				t.Errorf("the version is written: %v, want %v", plan.Version, c.version)
			}
		})
	}
}

func TestWhatAGatewayGets(t *testing.T) {
	p := play(t)
	plan := p.plan()
	if got := plan.actions(); got != "create create create" {
		t.Fatalf("nothing is there, and the plan is %s", got)
	}
	for _, kind := range Kinds {
		o := plan.document(kind)
		owners := o.GetOwnerReferences()
		if o.GetName() != "web-istio" || o.GetNamespace() != "shop" || o.GetResourceVersion() != "" {
			t.Errorf("the %s is %s/%s at %q", kind, o.GetNamespace(), o.GetName(), o.GetResourceVersion())
		}
		if len(owners) != 1 || owners[0].UID != "uid-1" || owners[0].Kind != "Gateway" || owners[0].APIVersion != "gateway.networking.k8s.io/v1" || owners[0].Controller != nil {
			t.Errorf("the owners of the %s are %+v", kind, owners)
		}
		for key, want := range map[string]string{ManagedLabel: ManagedBy, GatewayLabel: "web", ClassLabel: "istio"} {
			if got := o.GetLabels()[key]; got != want {
				t.Errorf("label %s of the %s is %q, want %q", key, kind, got, want)
			}
		}
	}
	var deployment appsv1.Deployment
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(plan.document(Deployment).Object, &deployment); err != nil {
		t.Fatal(err)
	}
	container := deployment.Spec.Template.Spec.Containers[0]
	if deployment.Spec.Template.Spec.ServiceAccountName != "web-istio" || container.Image != "proxy" || strings.Join(container.Args, " ") != "--ports 8080" {
		t.Errorf("the Pods are %+v", deployment.Spec.Template.Spec)
	}
	if deployment.Spec.Replicas != nil {
		t.Error("the number of replicas is not ours to keep: an autoscaler sets it")
	}
	for key, value := range deployment.Spec.Selector.MatchLabels {
		if deployment.Spec.Template.Labels[key] != value {
			t.Errorf("the selector has %s=%s, the Pods do not", key, value)
		}
	}
	if got := deployment.Spec.Template.Annotations["istio.io/rev"]; got != "canary" {
		t.Errorf("the Pods are of revision %q", got)
	}
}

func TestNames(t *testing.T) {
	long := strings.Repeat("a", 57)
	for name, c := range map[string]struct {
		change            []func(*gateway.Gateway)
		workload, account string
		reason            string
	}{
		"by default":                              {nil, "web-istio", "web-istio", ""},
		"another name":                            {[]func(*gateway.Gateway){annotated(NameOverride, "edge")}, "edge", "web-istio", ""},
		"another account":                         {[]func(*gateway.Gateway){annotated(accountOverride, "sa")}, "web-istio", "sa", ""},
		"an empty override is none":               {[]func(*gateway.Gateway){annotated(NameOverride, ""), annotated(accountOverride, "")}, "web-istio", "web-istio", ""},
		"63 characters":                           {[]func(*gateway.Gateway){named(long)}, long + "-istio", long + "-istio", ""},
		"64 characters":                           {[]func(*gateway.Gateway){named(long + "b")}, "", "", ReasonInvalidName},
		"64 characters with a name":               {[]func(*gateway.Gateway){named(long + "b"), annotated(NameOverride, "edge")}, "edge", long + "b-istio", ""},
		"the Gateway's own name of 64":            {[]func(*gateway.Gateway){named(strings.Repeat("a", 64)), annotated(NameOverride, "edge")}, "", "", ReasonInvalidName},
		"its own name of 63, and another for all": {[]func(*gateway.Gateway){named(strings.Repeat("a", 63)), annotated(NameOverride, "edge"), annotated(accountOverride, "sa")}, "edge", "sa", ""},
		"a class of 63 characters": {[]func(*gateway.Gateway){func(gw *gateway.Gateway) {
			gw.Spec.GatewayClassName = gateway.ObjectName(strings.Repeat("c", 63))
		}, annotated(NameOverride, "edge"), annotated(accountOverride, "sa")}, "edge", "sa", ""},
		"a class of 64 characters": {[]func(*gateway.Gateway){func(gw *gateway.Gateway) {
			gw.Spec.GatewayClassName = gateway.ObjectName(strings.Repeat("c", 64))
		}, annotated(NameOverride, "edge"), annotated(accountOverride, "sa")}, "", "", ReasonInvalidName},
		"a name that is none":            {[]func(*gateway.Gateway){annotated(NameOverride, "No_Name")}, "", "", ReasonInvalidName},
		"an account that is none":        {[]func(*gateway.Gateway){annotated(accountOverride, "No_Name")}, "", "", ReasonInvalidName},
		"a name with a path in it":       {[]func(*gateway.Gateway){annotated(NameOverride, "../other")}, "", "", ReasonInvalidName},
		"a name that breaks out of YAML": {[]func(*gateway.Gateway){annotated(NameOverride, "a\"\nkind: Secret")}, "", "", ReasonInvalidName},
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t, c.change...)
			p.Class = &gateway.GatewayClass{Spec: gateway.GatewayClassSpec{ControllerName: ControllerName}}
			plan := p.plan()
			if c.reason != "" {
				if plan.Problem == nil || plan.Problem.Reason != c.reason || !plan.Version {
					t.Errorf("the plan is %+v, want %s, and the version written all the same", plan, c.reason)
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

func TestPortsAreUniqueInNumberAndName(t *testing.T) {
	long := strings.Repeat("x", 70)
	for name, c := range map[string]struct {
		listeners []string // name:port
		want      string
	}{
		"none":                          {nil, "status-port:15021"},
		"one":                           {[]string{"http:80"}, "status-port:15021 http:80"},
		"two of one number":             {[]string{"a:80", "b:80"}, "status-port:15021 a:80"},
		"names that differ by a dot":    {[]string{"a.b:80", "a-b:81"}, "status-port:15021 a-b:80 a-b-81:81"},
		"the status port's name":        {[]string{"status-port:80"}, "status-port:15021 status-port-80:80"},
		"the status port's number":      {[]string{"http:15021", "b:80"}, "status-port:15021 b:80"},
		"too long":                      {[]string{long + ":80"}, "status-port:15021 " + long[:63] + ":80"},
		"too long, and the same so far": {[]string{long + "a:80", long + "b:81"}, "status-port:15021 " + long[:63] + ":80 " + long[:60] + "-81:81"},
		"taken by a number's suffix":    {[]string{"a-81:80", "a:82", "a:81"}, "status-port:15021 a-81:80 a:82 a-81-1:81"},
		"cut at a hyphen":               {[]string{long[:62] + "-z:80"}, "status-port:15021 " + long[:62] + ":80"},
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t, func(gw *gateway.Gateway) {
				gw.Spec.Listeners = nil
				for _, l := range c.listeners {
					called, text, _ := strings.Cut(l, ":")
					number, err := strconv.Atoi(text)
					if err != nil {
						t.Fatal(err)
					}
					gw.Spec.Listeners = append(gw.Spec.Listeners, gateway.Listener{
						Name: gateway.SectionName(called), Protocol: gateway.HTTPSProtocolType,
						Port: gateway.PortNumber(number),
					})
				}
			})
			var got []string
			for _, port := range portsOf(p.Gateway) {
				got = append(got, fmt.Sprintf("%s:%d", port.Name, port.Port))
			}
			if all := strings.Join(got, " "); all != c.want {
				t.Errorf("the ports are %s, want %s", all, c.want)
			}
		})
	}
}

func TestInfrastructure(t *testing.T) {
	own := func(gw *gateway.Gateway) {
		gw.Labels = map[string]string{"own": "label"}
		gw.Annotations = map[string]string{"own": "annotation", NameOverride: "edge", versionAnnotation: "5", corev1.LastAppliedConfigAnnotation: "{}"}
	}
	given := func(gw *gateway.Gateway) {
		gw.Spec.Infrastructure = &gateway.GatewayInfrastructure{
			Labels:      map[gateway.LabelKey]gateway.LabelValue{"team": "a", GatewayLabel: "stolen", ManagedLabel: "stolen", gateway.GroupName + "/other": "stolen"},
			Annotations: map[gateway.AnnotationKey]gateway.AnnotationValue{"cost": "b: \"c\"\n- d"},
		}
	}
	plan := play(t, own).plan()
	for _, kind := range Kinds {
		o := plan.document(kind)
		if o.GetLabels()["own"] != "label" || o.GetAnnotations()["own"] != "annotation" || len(o.GetAnnotations()) != 2 { // and the digest
			t.Errorf("without infrastructure the %s has %v and %v", kind, o.GetLabels(), o.GetAnnotations())
		}
	}
	plan = play(t, own, given).plan()
	for _, kind := range Kinds {
		o := plan.document(kind)
		if o.GetLabels()["team"] != "a" || o.GetLabels()["own"] != "" || o.GetLabels()[gateway.GroupName+"/other"] != "" || o.GetAnnotations()["cost"] != "b: \"c\"\n- d" || o.GetAnnotations()["own"] != "" {
			t.Errorf("with infrastructure the %s has %v and %v", kind, o.GetLabels(), o.GetAnnotations())
		}
		if o.GetLabels()[GatewayLabel] != "web" || o.GetLabels()[ManagedLabel] != ManagedBy {
			t.Errorf("the %s is of %v", kind, o.GetLabels())
		}
	}
	labels, _, _ := unstructured.NestedStringMap(plan.document(Deployment).Object, "spec", "template", "metadata", "labels")
	if labels["team"] != "a" || labels[GatewayLabel] != "web" || labels[ManagedLabel] != ManagedBy {
		t.Errorf("the Pods have %v", labels)
	}
}
