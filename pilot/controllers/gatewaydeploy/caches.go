package gatewaydeploy

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
	"incumbent.dev/incumbent/pkg/revisions"
)

// keepGateway leaves out the status, which changes more often than all else and says nothing here.
func keepGateway(gw *gateway.Gateway) *gateway.Gateway {
	meta := reconcile.Meta(gw.ObjectMeta)
	meta.Labels, meta.Annotations = gw.Labels, gw.Annotations
	return &gateway.Gateway{ObjectMeta: meta, Spec: gw.Spec}
}

func keepClass(class *gateway.GatewayClass) *gateway.GatewayClass {
	return &gateway.GatewayClass{
		ObjectMeta: reconcile.Meta(class.ObjectMeta),
		Spec:       gateway.GatewayClassSpec{ControllerName: class.Spec.ControllerName},
	}
}

// keepNamespace keeps which revision a namespace has, and no other label: those of many change all the time.
func keepNamespace(namespace *corev1.Namespace) *corev1.Namespace {
	kept := &corev1.Namespace{ObjectMeta: reconcile.Meta(namespace.ObjectMeta)}
	kept.Labels = revisions.Inherited(metav1.ObjectMeta{}, namespace.Labels).Labels
	return kept
}

// keepConfigMap keeps what may be a template or an overlay. Most ConfigMaps of a cluster are neither: of their
// keys the names are kept, for those that are referred to by mistake.
func (c *Controller) keepConfigMap(configMap *corev1.ConfigMap) *corev1.ConfigMap {
	meta := reconcile.Meta(configMap.ObjectMeta)
	if class := configMap.Labels[ClassDefaultsLabel]; class != "" {
		meta.Labels, meta.CreationTimestamp = map[string]string{ClassDefaultsLabel: class}, configMap.CreationTimestamp
	}
	data := make(map[string]string, len(configMap.Data))
	for name, text := range configMap.Data {
		data[name] = ""
		if c.isTemplate(configMap) || slices.ContainsFunc(Kinds, func(k Kind) bool { return known[k].overlay == name }) {
			data[name] = text
		}
	}
	return &corev1.ConfigMap{ObjectMeta: meta, Data: data}
}

// parsed is the template as it was read last.
type parsed struct {
	text     *string // nil: the program's own
	template *Template
	problem  error
}

// currentTemplate is the one in force, or why there is none. While the ConfigMap is wrong nothing is written: what is
// deployed stays.
func (c *Controller) currentTemplate() (*Template, error) {
	configMap := c.configMaps.Get(c.config.Namespace, c.config.Template)
	c.mu.Lock()
	defer c.mu.Unlock()
	if configMap == nil {
		if c.template.text != nil {
			c.template = parsed{template: DefaultTemplate()}
		}
		return c.template.template, c.template.problem
	}
	text := configMap.Data[TemplateKey]
	if c.template.text == nil || *c.template.text != text {
		c.template = parsed{text: &text}
		source := fmt.Sprintf("key %s of ConfigMap %s/%s", TemplateKey, configMap.Namespace, configMap.Name)
		c.template.template, c.template.problem = ParseTemplate(source, text)
	}
	return c.template.template, c.template.problem
}
