package gateway

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/controllers/gatewaydeploy"
)

// admitted creates a Pod of a Deployment in a dry run, which includes the admission plugin PodSecurity.
func (p *plane) admitted(name string, change ...func(*corev1.PodSpec)) error {
	p.Helper()
	var deployment appsv1.Deployment
	harness.Must(p.T, runtime.DefaultUnstructuredConverter.FromUnstructured(p.get(gatewaydeploy.Deployment, name).Object, &deployment))
	template := deployment.Spec.Template
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: template.Labels, Annotations: template.Annotations}, Spec: template.Spec}
	for _, do := range change {
		do(&pod.Spec)
	}
	_, err := p.admin.Kube().CoreV1().Pods(p.home).Create(p.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// The Pods of the built-in template meet each level of Pod Security, also with an overlay of a user. Administrators can exceed them.
func TestDeploy_PodSecurity(t *testing.T) {
	p := newPlane(t)
	p.serve("a", p.identity("a"))
	p.configMap("params", nil, map[string]string{"deployment": `spec: {replicas: 3, template: {spec: {tolerations: [{operator: Exists}],
 containers: [{name: istio-proxy, resources: {limits: {cpu: 1}}, livenessProbe: {tcpSocket: {port: 15021}}}]}}}`})
	p.gateway(p.home, "plain")
	p.gateway(p.home, "sized", parameters("params"))
	p.exist(true, "plain-istio", workload...)
	p.exist(true, "sized-istio", workload...)
	forbidden := map[string]func(*corev1.PodSpec){
		"restricted": func(spec *corev1.PodSpec) { spec.SecurityContext = nil }, "baseline": func(spec *corev1.PodSpec) { spec.HostPID = true },
	}
	for _, level := range []string{"restricted", "baseline"} {
		p.patch(namespaces, "", p.home, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"`+level+`","pod-security.kubernetes.io/enforce-version":"latest"}}}`)
		p.until("the level "+level+" is in effect", func() bool { return apierrors.IsForbidden(p.admitted("plain-istio", forbidden[level])) })
		for _, name := range []string{"plain-istio", "sized-istio"} {
			if err := p.admitted(name); err != nil {
				t.Errorf("%s: Pod of %s: %v", level, name, err)
			}
		}
	}
	p.configMap("defaults", map[string]string{gatewaydeploy.ClassDefaultsLabel: "istio"}, map[string]string{"deployment": "spec: {template: {spec: {hostNetwork: true, securityContext: {sysctls: null}}}}"})
	p.until("the API server rejects a Pod with the network of the host", func() bool {
		err := p.admitted("plain-istio")
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "host namespaces")
	})
}
