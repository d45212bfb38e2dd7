package gatewaydeploy

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// TestOverlay_Escapes has overlays of a Gateway that must be rejected, quickly.
func TestOverlay_Escapes(t *testing.T) {
	const pod, container = `spec: {template: {spec: {`, `spec: {template: {spec: {containers: [{name: istio-proxy, `
	for name, c := range map[string][2]string{
		"removes the security context of the Pod": {"deployment", pod + `$deleteFromPrimitiveList/securityContext: null}}}`},
		"removes the security context":            {"deployment", container + `$deleteFromPrimitiveList/securityContext: null}]}}}`},
		"removes the account":                     {"deployment", pod + `$deleteFromPrimitiveList/serviceAccountName: null}}}`},
		"removes the image":                       {"deployment", container + `$deleteFromPrimitiveList/image: null}]}}}`},
		"enables injection":                       {"deployment", `spec: {template: {metadata: {labels: {$deleteFromPrimitiveList/sidecar.istio.io/inject: null}}}}`},
		"removes all labels of Pods":              {"deployment", `spec: {template: {metadata: {$deleteFromPrimitiveList/labels: null}}}`},
		"removes the selector":                    {"service", `spec: {$deleteFromPrimitiveList/selector: null}`},
		"removes the ports":                       {"service", `spec: {$deleteFromPrimitiveList/ports: null}`},
		"removes the target":                      {"horizontalPodAutoscaler", `spec: {maxReplicas: 3, $deleteFromPrimitiveList/scaleTargetRef: null}`},
		"has a container without a name":          {"deployment", `spec: {template: {spec: {containers: [{name: null, resources: {}}]}}}`},
		"has a quantity with a large exponent":    {"deployment", container + `resources: {limits: {cpu: "1e-10000000"}}}]}}}`},
		"keeps Pods of other namespaces away": {"deployment", pod + `affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [
			{topologyKey: kubernetes.io/hostname, namespaceSelector: {}, labelSelector: {matchLabels: {app: victim}}}]}}}}}`},
		"joins a network of another namespace": {"deployment", `spec: {template: {metadata: {annotations: {k8s.v1.cni.cncf.io/networks: other/net}}}}`},
		"requests an injector with an image":   {"deployment", `spec: {template: {metadata: {annotations: {vault.hashicorp.com/agent-inject: "true", vault.hashicorp.com/agent-image: evil}}}}`},
		"requests the injection of Linkerd":    {"deployment", `spec: {template: {metadata: {annotations: {linkerd.io/inject: enabled, config.linkerd.io/proxy-image: evil}}}}`},
		"gives the account a cloud role":       {"serviceAccount", `metadata: {annotations: {eks.amazonaws.com/role-arn: "arn:aws:iam::1:role/admin"}}`},
		"is a second document":                 {"service", "{}\n---\nspec: {externalIPs: [192.0.2.1]}"},
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t, func(gw *gateway.Gateway) {
				gw.Spec.Infrastructure = &gateway.GatewayInfrastructure{ParametersRef: &gateway.LocalParametersReference{Kind: "ConfigMap", Name: "params"}}
			})
			p.configs["params"] = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "params", Namespace: "shop"}, Data: map[string]string{c[0]: c[1]}}
			began := time.Now()
			plan := p.plan()
			if took := time.Since(began); took > 300*time.Millisecond {
				t.Errorf("the plan took %v", took)
			}
			if plan.Problem == nil || plan.Problem.Reason != ReasonInvalidParameters {
				t.Errorf("the plan has the problem %v, want %s", plan.Problem, ReasonInvalidParameters)
			} else {
				t.Log(plan.Problem)
			}
		})
	}
}

// Own labels of a Gateway must not be the selector of a Deployment before Istio 1.24.
func TestMetadata_FormerSelector(t *testing.T) {
	for name, set := range map[string]func(*gateway.Gateway){
		"own": func(gw *gateway.Gateway) { gw.Labels = map[string]string{formerGatewayLabel: "other"} },
		"infrastructure": func(gw *gateway.Gateway) {
			gw.Spec.Infrastructure = &gateway.GatewayInfrastructure{Labels: map[gateway.LabelKey]gateway.LabelValue{formerGatewayLabel: "other"}}
		},
	} {
		p := play(t, set)
		for _, s := range p.plan().Steps {
			if s.Kind == Deployment {
				d, err := Deployment.typed(s.Document)
				harness.Must(t, err)
				if text, _ := toJSON(d); contains(text, `"`+formerGatewayLabel+`":"other"`) {
					t.Errorf("%s: Pods have the former selector label of Gateway other", name)
				}
			}
		}
	}
}

func contains(text, part string) bool {
	for i := range len(text) - len(part) + 1 {
		if text[i:i+len(part)] == part {
			return true
		}
	}
	return false
}
