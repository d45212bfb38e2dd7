package gatewaystatus

import (
	"cmp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/pilot/controllers/gatewaydeploy"
	"incumbent.dev/incumbent/pilot/controllers/reconcile"
	"incumbent.dev/incumbent/pkg/revisions"
)

// Names of indexes.
const (
	byNamespace   = "namespace"
	byClass       = "class"
	byCertificate = "certificate"
	byParent      = "parent"
	byBackend     = "backend"
	byReferred    = "referred" // namespaces of certificates and backends
	byGateway     = "gateway"
	byLabel       = "label" // the value of the label with the name, which can be short
	byRevision    = "revision"
	byObject      = "object"
)

// caches is the view of a controller.
type caches struct {
	tags          revisions.Tags
	classCache    *reconcile.Cache[key, *gateway.GatewayClass]
	gatewayCache  *reconcile.Cache[key, *gateway.Gateway]
	routeCaches   map[string]*reconcile.Cache[key, *route] // by kind
	grantCache    *reconcile.Cache[key, *gateway.ReferenceGrant]
	spaceCache    *reconcile.Cache[key, *corev1.Namespace]
	serviceCache  *reconcile.Cache[key, *corev1.Service]
	secretCache   *reconcile.Cache[key, *corev1.Secret]
	workloadCache *reconcile.Cache[key, *appsv1.Deployment]
	podCache      *reconcile.Cache[key, *corev1.Pod]
	scalerCache   *reconcile.Cache[key, *autoscalingv2.HorizontalPodAutoscaler]
	budgetCache   *reconcile.Cache[key, *policyv1.PodDisruptionBudget]
	// serviceWarnings and mountWarnings are Events about Services and Pods.
	serviceWarnings *reconcile.Cache[key, *corev1.Event]
	mountWarnings   *reconcile.Cache[key, *corev1.Event]

	parsedSelectors func(*gateway.Gateway) []labels.Selector
}

// watch declares the caches. A change causes a reconcile of each object whose status depends on it.
func (c *caches) watch(loop *reconcile.Controller[key], api clients, client kubernetes.Interface, tags revisions.Tags) {
	c.tags = tags
	c.watchGateways(loop, api)
	c.watchRoutes(loop, api)
	c.watchRest(loop, client)
	c.watchWorkloads(loop, client)
}

func (c *caches) watchGateways(loop *reconcile.Controller[key], api clients) {
	c.classCache = reconcile.Watch(loop, reconcile.Kind[key, *gateway.GatewayClass]{
		Name: "gatewayclasses", From: reconcile.From(api.GatewayClasses(), reconcile.Selector{}),
		Keep: func(o *gateway.GatewayClass) *gateway.GatewayClass { o.ObjectMeta = meta(o.ObjectMeta); return o },
		Keys: func(o *gateway.GatewayClass) []key {
			return append(c.gatewayKeys(c.gatewayCache.By(byClass, o.Name)), key{classKind, "", o.Name})
		},
	})
	c.gatewayCache = reconcile.Watch(loop, reconcile.Kind[key, *gateway.Gateway]{
		Name: "gateways", From: reconcile.From(api.Gateways(""), reconcile.Selector{}),
		Keep: keptGateway,
		Keys: func(o *gateway.Gateway) []key { return c.gatewayKeys([]*gateway.Gateway{o}) },
		Indexes: map[string]func(*gateway.Gateway) []string{
			byNamespace:   func(o *gateway.Gateway) []string { return []string{o.Namespace} },
			byClass:       func(o *gateway.Gateway) []string { return []string{string(o.Spec.GatewayClassName)} },
			byCertificate: certificateNames,
			byReferred:    func(o *gateway.Gateway) []string { return namespacesOf(certificateNames(o)) },
			byLabel:       func(o *gateway.Gateway) []string { return []string{labelled(o)} },
		},
	})
	c.parsedSelectors = reconcile.Derive(c.gatewayCache, selectorsOf)
	c.grantCache = reconcile.Watch(loop, reconcile.Kind[key, *gateway.ReferenceGrant]{
		Name: "referencegrants", From: reconcile.From(api.ReferenceGrants(""), reconcile.Selector{}),
		Keep: func(o *gateway.ReferenceGrant) *gateway.ReferenceGrant { o.ObjectMeta = meta(o.ObjectMeta); return o },
		Keys: c.grantKeys,
		Indexes: map[string]func(*gateway.ReferenceGrant) []string{
			byNamespace: func(o *gateway.ReferenceGrant) []string { return []string{o.Namespace} },
		},
	})
}

// watchRoutes declares a cache for each kind of routes. All Gateways depend on the kinds that are served.
func (c *caches) watchRoutes(loop *reconcile.Controller[key], api clients) {
	c.routeCaches = map[string]*reconcile.Cache[key, *route]{}
	for kind, resource := range routeKinds {
		c.routeCaches[kind] = reconcile.Watch(loop, reconcile.Kind[key, *route]{
			Name: resource, From: reconcile.From(api.routes(resource, ""), reconcile.Selector{}),
			Keep: func(o *route) *route {
				o.TypeMeta = metav1.TypeMeta{APIVersion: gateway.GroupVersion.String(), Kind: kind}
				o.ObjectMeta = meta(o.ObjectMeta)
				return o
			},
			Keys: func(o *route) []key { return c.routeKeys([]*route{o}) },
			Indexes: map[string]func(*route) []string{
				byNamespace: func(o *route) []string { return []string{o.Namespace} }, byParent: parentNames, byBackend: backendNames,
				byReferred: func(o *route) []string { return namespacesOf(backendNames(o)) },
			},
			Optional: true,
		})
	}
}

// routesBy returns the routes of all kinds with this value in an index.
func (c *caches) routesBy(index, value string) (all []*route) {
	for _, cache := range c.routeCaches {
		all = append(all, cache.By(index, value)...)
	}
	return all
}

func (c *caches) watchRest(loop *reconcile.Controller[key], client kubernetes.Interface) {
	c.spaceCache = reconcile.Watch(loop, reconcile.Kind[key, *corev1.Namespace]{
		Name: "namespaces", From: reconcile.From(client.CoreV1().Namespaces(), reconcile.Selector{}),
		Keep: func(o *corev1.Namespace) *corev1.Namespace { return &corev1.Namespace{ObjectMeta: meta(o.ObjectMeta)} },
		Keys: c.namespaceKeys,
	})
	c.serviceCache = reconcile.Watch(loop, reconcile.Kind[key, *corev1.Service]{
		Name: "services", From: reconcile.From(client.CoreV1().Services(""), reconcile.Selector{}), Keep: keptService,
		Keys: func(o *corev1.Service) []key {
			return slices.Concat(keysOf(c.routesBy(byBackend, o.Namespace+"/"+o.Name)), ownerKeys(o), c.revised(pilotRevisions(o)...))
		},
		Indexes: map[string]func(*corev1.Service) []string{
			byGateway: func(o *corev1.Service) []string { return gatewayNames(o) }, byRevision: pilotRevisions,
		},
	})
	c.secretCache = reconcile.Watch(loop, reconcile.Kind[key, *corev1.Secret]{
		Name: "secrets", From: reconcile.From(client.CoreV1().Secrets(""), reconcile.Selector{Fields: "type=" + string(corev1.SecretTypeTLS)}),
		Keep: checkedSecret,
		Keys: func(o *corev1.Secret) []key {
			return c.gatewayKeys(c.gatewayCache.By(byCertificate, o.Namespace+"/"+o.Name))
		},
	})
}

// watchWorkloads declares the caches of the objects of Gateways whose status is passed on, selected by the label of the Gateway.
func (c *caches) watchWorkloads(loop *reconcile.Controller[key], client kubernetes.Interface) {
	labelledOnly := reconcile.Selector{Labels: gateway.GatewayNameLabelKey}
	c.workloadCache = watchMade(loop, "deployments", reconcile.From(client.AppsV1().Deployments(""), labelledOnly),
		func(o *appsv1.Deployment) *appsv1.Deployment {
			return &appsv1.Deployment{ObjectMeta: madeMeta(o.ObjectMeta), Status: o.Status}
		})
	c.scalerCache = watchMade(loop, "horizontalpodautoscalers", reconcile.From(client.AutoscalingV2().HorizontalPodAutoscalers(""), labelledOnly), keptAutoscaler)
	c.budgetCache = watchMade(loop, "poddisruptionbudgets", reconcile.From(client.PolicyV1().PodDisruptionBudgets(""), labelledOnly), keptBudget)
	c.podCache = reconcile.Watch(loop, reconcile.Kind[key, *corev1.Pod]{
		Name: "pods", From: reconcile.From(client.CoreV1().Pods(""), labelledOnly), Keep: keptPod,
		Keys:    c.podKeys,
		Indexes: map[string]func(*corev1.Pod) []string{byGateway: func(o *corev1.Pod) []string { return []string{podLabel(o)} }},
	})
	// Events cannot be selected by label. The status of a Pod does not have the cause of FailedMount.
	c.serviceWarnings = watchWarnings(loop, client, "involvedObject.kind=Service,type="+corev1.EventTypeWarning, func(about corev1.ObjectReference) []key {
		if service := c.service(about.Namespace, about.Name); service != nil {
			return ownerKeys(service)
		}
		return nil
	})
	c.mountWarnings = watchWarnings(loop, client, "involvedObject.kind=Pod,reason=FailedMount", func(about corev1.ObjectReference) []key {
		if pod := c.podCache.Get(about.Namespace, about.Name); pod != nil {
			return c.podKeys(pod)
		}
		return nil
	})
}

func watchWarnings(loop *reconcile.Controller[key], client kubernetes.Interface, selected string, keys func(about corev1.ObjectReference) []key) *reconcile.Cache[key, *corev1.Event] {
	return reconcile.Watch(loop, reconcile.Kind[key, *corev1.Event]{
		Name: "events", From: reconcile.From(client.CoreV1().Events(""), reconcile.Selector{Fields: selected}), Keep: keptEvent,
		Keys:    func(o *corev1.Event) []key { return keys(o.InvolvedObject) },
		Indexes: map[string]func(*corev1.Event) []string{byObject: func(o *corev1.Event) []string { return []string{string(o.InvolvedObject.UID)} }},
	})
}

// podLabel returns the namespace of a Pod and the value of its label with the name of the Gateway.
func podLabel(o *corev1.Pod) string { return o.Namespace + "/" + o.Labels[gateway.GatewayNameLabelKey] }

func (c *caches) podKeys(o *corev1.Pod) (all []key) {
	for _, g := range c.gatewayCache.By(byLabel, podLabel(o)) {
		all = append(all, key{gatewayKind, g.Namespace, g.Name})
	}
	return all
}

// watchMade declares the cache of a kind of objects that Gateways own.
func watchMade[T reconcile.Object](loop *reconcile.Controller[key], name string, from reconcile.Source, keep func(T) T) *reconcile.Cache[key, T] {
	return reconcile.Watch(loop, reconcile.Kind[key, T]{
		Name: name, From: from, Keep: keep, Keys: func(o T) []key { return ownerKeys(o) },
		Indexes: map[string]func(T) []string{byGateway: func(o T) []string { return gatewayNames(o) }},
	})
}

// labelled returns the namespace of a Gateway and the value of the label with its name.
func labelled(g *gateway.Gateway) string { return g.Namespace + "/" + gatewaydeploy.LabelValue(g.Name) }

func keptGateway(o *gateway.Gateway) *gateway.Gateway {
	annotations := o.Annotations
	o.ObjectMeta = meta(o.ObjectMeta)
	for _, name := range []string{gatewaydeploy.NameOverride, gatewaydeploy.ProblemAnnotation} {
		if value, annotated := annotations[name]; annotated {
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, name, value)
		}
	}
	return o
}

func keptService(o *corev1.Service) *corev1.Service {
	kept := &corev1.Service{ObjectMeta: madeMeta(o.ObjectMeta), Status: o.Status}
	kept.Spec = corev1.ServiceSpec{Type: o.Spec.Type, ExternalIPs: o.Spec.ExternalIPs, ClusterIPs: o.Spec.ClusterIPs}
	for _, p := range o.Spec.Ports {
		kept.Spec.Ports = append(kept.Spec.Ports, corev1.ServicePort{Port: p.Port, Protocol: p.Protocol})
	}
	return kept
}

// gatewayKeys returns the keys of Gateways and of their routes.
func (c *caches) gatewayKeys(gateways []*gateway.Gateway) (all []key) {
	for _, g := range gateways {
		all = append(all, key{gatewayKind, g.Namespace, g.Name})
		all = append(all, keysOf(c.routes(g.Namespace, g.Name))...)
	}
	return all
}

// keysOf returns the keys of routes.
func keysOf(routes []*route) (all []key) {
	for _, r := range routes {
		all = append(all, key{r.Kind, r.Namespace, r.Name})
	}
	return all
}

// routeKeys returns the keys of routes and of their parent Gateways.
func (c *caches) routeKeys(routes []*route) []key {
	all := keysOf(routes)
	for _, r := range routes {
		for _, ref := range r.Spec.ParentRefs {
			if name, ok := parentGateway(r, ref); ok {
				all = append(all, key{gatewayKind, name.Namespace, name.Name})
			}
		}
	}
	return all
}

// grantKeys returns the keys of the Gateways and routes that a grant allows to refer to its namespace, and that do so. A grant must not
// cause work for objects of others, because any user can name their namespaces in it.
func (c *caches) grantKeys(grant *gateway.ReferenceGrant) (all []key) {
	from := sets.New[string]()
	for _, f := range grant.Spec.From {
		from.Insert(string(f.Namespace))
	}
	for _, g := range c.gatewayCache.By(byReferred, grant.Namespace) {
		if from.Has(g.Namespace) {
			all = append(all, key{gatewayKind, g.Namespace, g.Name})
		}
	}
	return append(all, keysOf(slices.DeleteFunc(c.routesBy(byReferred, grant.Namespace), func(r *route) bool { return !from.Has(r.Namespace) }))...)
}

// namespaceKeys returns the keys of all Gateways and routes of a namespace and of related objects. The
// labels of the namespace affect the revision and the routes that listeners allow.
func (c *caches) namespaceKeys(namespace *corev1.Namespace) []key {
	return append(c.gatewayKeys(c.gatewayCache.By(byNamespace, namespace.Name)), c.routeKeys(c.routesBy(byNamespace, namespace.Name))...)
}

// pilotRevisions returns the revision and the tag of the Service of a control plane, or nothing for other Services.
func pilotRevisions(o *corev1.Service) (all []string) {
	for _, name := range []string{o.Labels[tagging.Label], o.Labels[tagging.TagLabel]} {
		if name != "" && o.Labels[gateway.GatewayNameLabelKey] == "" {
			all = append(all, name)
		}
	}
	return all
}

// revised returns the keys of the Gateways with one of these revision labels.
func (c *caches) revised(revisions ...string) (all []key) {
	if len(revisions) == 0 {
		return nil
	}
	for _, g := range c.gatewayCache.List() {
		namespace := c.namespace(g.Namespace)
		if namespace != nil && slices.Contains(revisions, reconcile.Inherited(g.ObjectMeta, namespace.Labels).Labels[tagging.Label]) {
			all = append(all, key{gatewayKind, g.Namespace, g.Name})
		}
	}
	return all
}

func ownerKeys(o metav1.Object) []key {
	if name := ownerName(o); name != "" {
		return []key{{gatewayKind, o.GetNamespace(), name}}
	}
	return nil
}

func gatewayNames(o metav1.Object) (all []string) {
	for _, k := range ownerKeys(o) {
		all = append(all, k.namespace+"/"+k.name)
	}
	return all
}

// ownerName returns the name of the Gateway of a labelled object, or "". The label has a long name only
// in a short form.
func ownerName(o metav1.Object) string {
	name := o.GetLabels()[gateway.GatewayNameLabelKey]
	if name == "" {
		return ""
	}
	return cmp.Or(gatewaydeploy.OwnerName(o), name)
}

// certificateNames returns the Secrets to which a Gateway refers.
func certificateNames(g *gateway.Gateway) (all []string) {
	for _, l := range g.Spec.Listeners {
		if l.TLS == nil {
			continue
		}
		for _, ref := range l.TLS.CertificateRefs {
			all = append(all, string(ptr.Deref(ref.Namespace, gateway.Namespace(g.Namespace)))+"/"+string(ref.Name))
		}
	}
	return all
}

// parentNames returns the Gateways to which a route refers.
func parentNames(r *route) (all []string) {
	for _, ref := range r.Spec.ParentRefs {
		if name, ok := parentGateway(r, ref); ok {
			all = append(all, name.Namespace+"/"+name.Name)
		}
	}
	return all
}

// backendNames returns the backends to which a route refers.
func backendNames(r *route) (all []string) {
	for _, ref := range backends(r) {
		all = append(all, string(ptr.Deref(ref.Namespace, gateway.Namespace(r.Namespace)))+"/"+string(ref.Name))
	}
	return all
}

// namespacesOf returns the namespaces of names.
func namespacesOf(names []string) []string {
	all := sets.New[string]()
	for _, name := range names {
		namespace, _, _ := strings.Cut(name, "/")
		all.Insert(namespace)
	}
	return all.UnsortedList()
}
