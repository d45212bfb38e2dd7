package gatewaydeploy

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

// keepGateway drops the status, which changes often, except the status of the condition Programmed.
func keepGateway(gw *gateway.Gateway) *gateway.Gateway {
	kept := &gateway.Gateway{ObjectMeta: reconcile.Meta(gw.ObjectMeta), Spec: gw.Spec}
	kept.Labels = gw.Labels
	kept.Annotations = gw.Annotations
	kept.Generation = gw.Generation
	kept.CreationTimestamp = gw.CreationTimestamp
	if programmed := apimeta.FindStatusCondition(gw.Status.Conditions, string(gateway.GatewayConditionProgrammed)); programmed != nil {
		kept.Status.Conditions = []metav1.Condition{{Type: programmed.Type, Status: programmed.Status, ObservedGeneration: programmed.ObservedGeneration}}
	}
	return kept
}

func keepClass(class *gateway.GatewayClass) *gateway.GatewayClass {
	return &gateway.GatewayClass{
		ObjectMeta: reconcile.Meta(class.ObjectMeta),
		Spec:       gateway.GatewayClassSpec{ControllerName: class.Spec.ControllerName, ParametersRef: class.Spec.ParametersRef},
	}
}

// keepNamespace keeps only the revision label, because other labels of namespaces can change often.
func keepNamespace(namespace *corev1.Namespace) *corev1.Namespace {
	kept := &corev1.Namespace{ObjectMeta: reconcile.Meta(namespace.ObjectMeta)}
	kept.Labels = reconcile.Inherited(metav1.ObjectMeta{}, namespace.Labels).Labels
	return kept
}

// keepService keeps whether the Service has an address.
func keepService(o *corev1.Service) *corev1.Service {
	kept := &corev1.Service{ObjectMeta: o.ObjectMeta, Spec: o.Spec}
	if len(o.Status.LoadBalancer.Ingress) > 0 {
		kept.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{}}
	}
	return kept
}

// keepDeployment drops the revision of the Deployment controller. A repair of a reverted field would otherwise differ each time.
func keepDeployment(o *appsv1.Deployment) *appsv1.Deployment {
	delete(o.Annotations, "deployment.kubernetes.io/revision")
	kept := &appsv1.Deployment{ObjectMeta: o.ObjectMeta, Spec: o.Spec}
	if rolledOut(o) {
		kept.Status = appsv1.DeploymentStatus{ObservedGeneration: o.Generation, Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1}
	}
	return kept
}

// keepConfigMap keeps the text of templates and overlays, and only the names of all other keys, which
// problems report.
func (c *Controller) keepConfigMap(configMap *corev1.ConfigMap) *corev1.ConfigMap {
	meta := reconcile.Meta(configMap.ObjectMeta)
	if class := configMap.Labels[ClassDefaultsLabel]; class != "" {
		meta.Labels = map[string]string{ClassDefaultsLabel: class}
		meta.CreationTimestamp = configMap.CreationTimestamp
	}
	data := make(map[string]string, len(configMap.Data))
	for name, text := range configMap.Data {
		data[name] = ""
		switch {
		case c.isTemplate(configMap):
			data[name] = text
		case slices.ContainsFunc(patched, func(k Kind) bool { return k.overlay() == name }):
			data[name] = strings.Clone(text[:min(len(text), maxOverlay+1)]) // enough to reject it
		}
	}
	return &corev1.ConfigMap{ObjectMeta: meta, Data: data}
}

// parsed is a parsed template, or the problem of its text.
type parsed struct {
	template *workloadTemplate
	problem  error
}

// currentTemplate returns the template, or an error if the ConfigMap is invalid. Deployed objects do not
// change then.
func (c *Controller) currentTemplate() (*workloadTemplate, error) {
	current := c.builtIn
	if configMap := c.configMaps.Get(c.config.Namespace, defaultTemplateName); configMap != nil {
		current = c.template(configMap)
	}
	return current.template, current.problem
}

// parsedTemplate parses the template of a ConfigMap.
func parsedTemplate(configMap *corev1.ConfigMap) (p parsed) {
	source := fmt.Sprintf("key %s of ConfigMap %s/%s", templateKey, configMap.Namespace, configMap.Name)
	p.template, p.problem = parseTemplate(source, configMap.Data[templateKey])
	return p
}
