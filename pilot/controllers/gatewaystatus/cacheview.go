package gatewaystatus

import (
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

var _ view = (*caches)(nil)

func (c *caches) class(name string) *gateway.GatewayClass { return c.classCache.Get("", name) }

func (c *caches) gateway(namespace, name string) *gateway.Gateway {
	return c.gatewayCache.Get(namespace, name)
}

func (c *caches) service(namespace, name string) *corev1.Service {
	return c.serviceCache.Get(namespace, name)
}

func (c *caches) secret(namespace, name string) *corev1.Secret {
	return c.secretCache.Get(namespace, name)
}

func (c *caches) namespace(name string) *corev1.Namespace { return c.spaceCache.Get("", name) }

func (c *caches) selectors(g *gateway.Gateway) []labels.Selector { return c.parsedSelectors(g) }

func (c *caches) grants(namespace string) []*gateway.ReferenceGrant {
	return c.grantCache.By(byNamespace, namespace)
}

func (c *caches) serves(kind string) bool { return c.routeCaches[kind].Served() }

func (c *caches) routes(namespace, name string) []*route {
	return c.routesBy(byParent, namespace+"/"+name)
}

func (c *caches) deployments(namespace, name string) []*appsv1.Deployment {
	return c.workloadCache.By(byGateway, namespace+"/"+name)
}

func (c *caches) services(namespace, name string) []*corev1.Service {
	return c.serviceCache.By(byGateway, namespace+"/"+name)
}

func (c *caches) pods(g *gateway.Gateway) []*corev1.Pod { return c.podCache.By(byGateway, labelled(g)) }

func (c *caches) autoscalers(namespace, name string) []*autoscalingv2.HorizontalPodAutoscaler {
	return c.scalerCache.By(byGateway, namespace+"/"+name)
}

func (c *caches) budgets(namespace, name string) []*policyv1.PodDisruptionBudget {
	return c.budgetCache.By(byGateway, namespace+"/"+name)
}

func (c *caches) warnings(about types.UID) []*corev1.Event {
	return append(c.serviceWarnings.By(byObject, string(about)), c.mountWarnings.By(byObject, string(about))...)
}

// claimed also returns true for a revision without tags that is known by the label of its Service, in any namespace.
func (c *caches) claimed(revision string) bool {
	return c.tags.HasTag(revision) || len(c.serviceCache.By(byRevision, revision)) > 0
}

func (c *caches) isMine(object metav1.ObjectMeta) bool { return c.tags.IsMine(object) }
