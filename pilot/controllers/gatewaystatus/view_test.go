package gatewaystatus

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

// table is a view of listed objects.
type table struct {
	objects []metav1.Object
	revision,
	defaultRevision string
	missing []string // kinds of routes
}

func find[T any, P interface {
	*T
	metav1.Object
}](t *table, namespace string, matches func(P) bool) (all []P) {
	for _, o := range t.objects {
		if object, ok := o.(P); ok && object.GetNamespace() == namespace && (matches == nil || matches(object)) {
			all = append(all, object)
		}
	}
	return all
}

func one[T any, P interface {
	*T
	metav1.Object
}](t *table, namespace, name string) P {
	for _, o := range find[T, P](t, namespace, nil) {
		if o.GetName() == name {
			return o
		}
	}
	return nil
}

func (t *table) class(name string) *gateway.GatewayClass {
	return one[gateway.GatewayClass](t, "", name)
}

func (t *table) gateway(namespace, name string) *gateway.Gateway {
	return one[gateway.Gateway](t, namespace, name)
}

func (t *table) service(namespace, name string) *corev1.Service {
	return one[corev1.Service](t, namespace, name)
}

func (t *table) secret(namespace, name string) *corev1.Secret {
	return one[corev1.Secret](t, namespace, name)
}

func (t *table) namespace(name string) *corev1.Namespace { return one[corev1.Namespace](t, "", name) }

func (t *table) selectors(g *gateway.Gateway) []labels.Selector { return selectorsOf(g) }

func (t *table) grants(namespace string) []*gateway.ReferenceGrant {
	return find[gateway.ReferenceGrant](t, namespace, nil)
}

func (t *table) serves(kind string) bool { return !slices.Contains(t.missing, kind) }

func (t *table) routes(namespace, name string) (all []*route) {
	for _, o := range t.objects {
		if r, ok := o.(*route); ok && slices.Contains(parentNames(r), namespace+"/"+name) {
			all = append(all, r)
		}
	}
	return all
}

func (t *table) deployments(namespace, name string) []*appsv1.Deployment {
	return find(t, namespace, func(d *appsv1.Deployment) bool { return d.Labels[gateway.GatewayNameLabelKey] == name })
}

func (t *table) services(namespace, name string) []*corev1.Service {
	return find(t, namespace, func(s *corev1.Service) bool { return s.Labels[gateway.GatewayNameLabelKey] == name })
}

func (t *table) pods(g *gateway.Gateway) []*corev1.Pod {
	return find(t, g.Namespace, func(p *corev1.Pod) bool { return p.Labels[gateway.GatewayNameLabelKey] == g.Name })
}

func (t *table) autoscalers(namespace, _ string) []*autoscalingv2.HorizontalPodAutoscaler {
	return find[autoscalingv2.HorizontalPodAutoscaler](t, namespace, nil)
}

func (t *table) budgets(namespace, _ string) []*policyv1.PodDisruptionBudget {
	return find[policyv1.PodDisruptionBudget](t, namespace, nil)
}

func (t *table) warnings(about types.UID) []*corev1.Event {
	return find(t, "infra", func(e *corev1.Event) bool { return e.InvolvedObject.UID == about })
}

func (t *table) claimed(revision string) bool { return revision == "stable" || revision == "canary" }

func (t *table) isMine(object metav1.ObjectMeta) bool {
	revision := object.Labels["istio.io/rev"]
	if revision == "" {
		revision = t.defaultRevision
	}
	return revision == t.revision
}

// read decodes YAML.
func read[T any](t *testing.T, content string) *T {
	t.Helper()
	o := new(T)
	if err := yaml.UnmarshalStrict([]byte(content), o); err != nil {
		t.Fatalf("%v:\n%s", err, content)
	}
	return o
}

// usual returns a cluster with the class, the namespaces infra and web, a Service in each, and the Deployment and the
// Service of a Gateway.
func usual(t *testing.T, objects ...metav1.Object) *table {
	t.Helper()
	owner := []metav1.OwnerReference{{UID: "g"}}
	labels := map[string]string{gateway.GatewayNameLabelKey: "gw"}
	here := metav1.ObjectMeta{Name: "gw-istio", Namespace: "infra", Labels: labels, OwnerReferences: owner}
	service := func(namespace string) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "backend", Namespace: namespace}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 8080}}},
		}
	}
	namespace := func(name string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}}
	}
	return &table{revision: "stable", defaultRevision: "stable", objects: append(objects,
		newClass(), &gateway.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: gateway.GatewayClassSpec{ControllerName: "example.com/other"}},
		namespace("infra"), namespace("web"), service("infra"), service("web"),
		&appsv1.Deployment{ObjectMeta: here, Status: appsv1.DeploymentStatus{
			Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1, Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue}},
		}},
		&corev1.Service{
			ObjectMeta: here, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}, {Port: 443}}},
			Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "127.0.0.9"}}}},
		},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "good", Namespace: "infra"}, Type: corev1.SecretTypeTLS},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "good", Namespace: "web"}, Type: corev1.SecretTypeTLS},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bad", Namespace: "infra"}, Type: corev1.SecretTypeTLS, StringData: map[string]string{problemKey: "invalid"}},
	)}
}

// newGateway returns a Gateway with these listeners.
func newGateway(t *testing.T, listeners ...string) *gateway.Gateway {
	t.Helper()
	g := &gateway.Gateway{
		ObjectMeta: metav1.ObjectMeta{Name: "gw", Namespace: "infra", UID: types.UID("g"), Generation: 3},
		Spec:       gateway.GatewaySpec{GatewayClassName: reconcile.GatewayClass},
	}
	for _, l := range listeners {
		g.Spec.Listeners = append(g.Spec.Listeners, *read[gateway.Listener](t, l))
	}
	return g
}

// newRoute returns an HTTPRoute with this specification.
func newRoute(t *testing.T, namespace, spec string) *route {
	t.Helper()
	return &route{
		TypeMeta:   metav1.TypeMeta{Kind: "HTTPRoute"},
		ObjectMeta: metav1.ObjectMeta{Name: "route", Namespace: namespace, Generation: 5}, Spec: *read[routeSpec](t, spec),
	}
}

func grant(t *testing.T, namespace, spec string) *gateway.ReferenceGrant {
	t.Helper()
	return &gateway.ReferenceGrant{ObjectMeta: metav1.ObjectMeta{Name: "grant", Namespace: namespace}, Spec: *read[gateway.ReferenceGrantSpec](t, spec)}
}

// stated returns a condition as "Status/Reason", or "". It reports a wrong generation.
func stated[T ~string](t *testing.T, conditions []metav1.Condition, kind T, generation int64) string {
	t.Helper()
	for _, c := range conditions {
		if c.Type != string(kind) {
			continue
		}
		if c.ObservedGeneration != generation {
			t.Errorf("%s is of generation %d, want %d", kind, c.ObservedGeneration, generation)
		}
		return string(c.Status) + "/" + c.Reason
	}
	return ""
}
