package gatewaydeploy

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"
	"k8s.io/client-go/rest"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/controllers/reconcile"
	"incumbent.dev/incumbent/pkg/kube"
)

// played is a view whose objects have managedFields as on an API server.
type played struct {
	view
	t       *testing.T
	objects map[string]metav1.Object
	configs map[string]*corev1.ConfigMap
}

func play(t *testing.T, change ...func(*gateway.Gateway)) *played {
	gw := &gateway.Gateway{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "uid-1", ResourceVersion: "7"},
		Spec: gateway.GatewaySpec{
			GatewayClassName: reconcile.GatewayClass,
			Listeners:        []gateway.Listener{{Name: "http", Port: 8080, Protocol: gateway.HTTPProtocolType}},
		},
	}
	for _, do := range change {
		do(gw)
	}
	p := &played{t: t, objects: map[string]metav1.Object{}, configs: map[string]*corev1.ConfigMap{}}
	fields, err := newFields(nil)
	harness.Must(t, err)
	p.view = view{
		Fields:  fields,
		Gateway: gw, IsMine: func(metav1.ObjectMeta) bool { return true },
		Template: defaultTemplate(), Revision: "canary",
		Parameters: func(name string) *corev1.ConfigMap { return p.configs[name] },
		Overlay:    overlayOf,
		Existing:   func(kind Kind, name string) metav1.Object { return p.objects[string(kind)+"/"+name] },
		Owned: func(kind Kind) (all []metav1.Object) {
			for _, o := range p.objects {
				if of := ownerOf(o); len(of) > 0 && of[0] == keyOf(p.Gateway) && o == p.objects[string(kind)+"/"+o.GetName()] {
					all = append(all, o)
				}
			}
			return all
		},
		Shared: func(Kind, string) bool { return false },
	}
	return p
}

// put stores an object after a sequence of writes.
func (p *played) put(kind Kind, by ...write) metav1.Object {
	p.t.Helper()
	server := managedfieldstest.NewTestFieldManager(schemas(), kind.gvk())
	for _, w := range by {
		o := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(w.document)}
		o.SetResourceVersion("")
		var err error
		if w.apply {
			err = server.Apply(o, w.manager, true)
		} else {
			err = server.Update(o, w.manager)
		}
		harness.Must(p.t, err)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(server.Live())
	harness.Must(p.t, err)
	o, err := kind.typed(content)
	harness.Must(p.t, err)
	o.SetManagedFields(server.ManagedFields())
	o.SetResourceVersion("42")
	p.objects[string(kind)+"/"+o.GetName()] = o
	return o
}

// write is an accepted write.
type write struct {
	manager  string
	apply    bool
	document map[string]any
}

// settle executes the plan as creates.
func (p *played) settle() {
	p.t.Helper()
	for _, s := range p.plan().Steps {
		if s.Action == actionCreate {
			p.put(s.Kind, write{reconcile.GatewayController, false, s.Document})
		}
	}
}

func (p *played) plan() plan {
	p.t.Helper()
	plan := decide(p.view)
	if plan.Problem != nil && plan.Problem.Reason != ReasonUnknownParameter && len(plan.Steps) > 0 {
		p.t.Errorf("a plan with a problem has steps: %+v", plan)
	}
	return plan
}

// actions returns the actions and reasons in the order of Kinds.
func (plan plan) actions() string {
	var all []string
	for _, s := range plan.Steps {
		action := string(s.Action)
		if s.Claim {
			action += "+claim"
		}
		if s.Problem != nil {
			action += ":" + s.Problem.Reason
		}
		all = append(all, action)
	}
	return strings.Join(all, " ")
}

func (plan plan) document(kind Kind) *unstructured.Unstructured {
	for _, s := range plan.Steps {
		if s.Kind == kind {
			return &unstructured.Unstructured{Object: s.Document}
		}
	}
	return &unstructured.Unstructured{}
}

// edited returns a copy of a document with one field set.
func edited(document map[string]any, value any, path ...string) map[string]any {
	to := runtime.DeepCopyJSON(document)
	if err := unstructured.SetNestedField(to, value, path...); err != nil {
		panic(err)
	}
	return to
}

// ofGateway returns a copy of a document that another Gateway owns.
func ofGateway(document map[string]any, name string, uid types.UID) map[string]any {
	o := unstructured.Unstructured{Object: runtime.DeepCopyJSON(document)}
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "gateway.networking.k8s.io/v1", Kind: "Gateway", Name: name, UID: uid}})
	return o.Object
}

// sealed returns a document with its digest.
func sealed(document map[string]any) map[string]any {
	if err := seal(document); err != nil {
		panic(err)
	}
	return document
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

// parameters sets the ConfigMap of parametersRef.
func parameters(name string) func(*gateway.Gateway) {
	return func(gw *gateway.Gateway) {
		gw.Spec.Infrastructure = &gateway.GatewayInfrastructure{ParametersRef: &gateway.LocalParametersReference{Kind: "ConfigMap", Name: name}}
	}
}

// unstarted returns a controller without an API server.
func unstarted(t *testing.T, config Config) *Controller {
	t.Helper()
	client, err := kube.NewClient(&rest.Config{Host: "http://127.0.0.1:1"})
	harness.Must(t, err)
	c, err := New(client, config)
	harness.Must(t, err)
	t.Cleanup(c.Close)
	return c
}
