package main

import (
	"strings"
	"testing"

	"incumbent.dev/incumbent/internal/tagging"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Errors name the value, and the fix if there is one.
func TestValues_Invalid(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		chart, set string
		want       []string
	}{
		{"pilot", "replicas=two", []string{"'/replicas'", "want null or integer"}},
		{"pilot", "replicas=-1", []string{"'/replicas'", "minimum"}},
		{"pilot", "elections.lock=endpoints", []string{"'/elections/lock'", "'configmap', 'lease', 'multi'"}},
		{"pilot", "elections.enabled=perhaps", []string{"'/elections/enabled'", "want boolean"}},
		{"pilot", "elections.leaseDuration=30", []string{"'/elections/leaseDuration'"}},
		{"pilot", "election.lock=lease", []string{"'election' not allowed"}},
		{"pilot", "fence.mode=off", []string{"'/fence/mode'", "'none'"}},
		{"pilot", "fence.others={istiod}", []string{"'/fence/others/0'"}},
		{"pilot", "revision=1.2", []string{"'/revision'"}},
		{"pilot", "name=", []string{"'/name'"}},
		{"pilot", "ingress.service=1x", []string{"'/ingress/service'"}},
		{"pilot", "gatewayAPI.objects={service}", []string{"'/gatewayAPI/objects/0'"}},
		{"pilot", "ingress.service=a/b/c", []string{"'/ingress/service'"}},
		{"pilot", "ingress.service=A/b", []string{"'/ingress/service'"}},
		{"pilot", "ingress.service=a/", []string{"'/ingress/service'"}},
		{"pilot", "ingress.selector=a/b", []string{"'/ingress/selector'"}},
		{"pilot", "ingress.selector=a,ingress.service=b/c", []string{"ingress.service is b/c", "ingress.selector is a", "only one"}},
		{"pilot", "args={--ingress-selector=x}", []string{"args contains --ingress-selector=x", "ingress.selector"}},
		{"pilot", "env.K8S_INGRESS_NS=a/b", []string{"'/env/K8S_INGRESS_NS'"}},
		{"pilot", "meshConfig.ingressService=a/b/c", []string{"'/meshConfig/ingressService'"}},
		{"pilot", "meshConfig.ingressControllerMode=some", []string{"'/meshConfig/ingressControllerMode'"}},
		{"pilot", "gatewayAPI.overlayFields={a b}", []string{"'/gatewayAPI/overlayFields/0'"}},
		{"pilot", "pod.containers[0].name=x", []string{"'/pod/containers'"}},
		{"pilot", "env.A=1", []string{"'/env/A'", "want boolean or string"}},
		{"pilot", "monitoring.rules.enabled=perhaps", []string{"'/monitoring/rules/enabled'", "want boolean"}},
		{"pilot", "monitoring.rules.runbooks=a#b", []string{"'/monitoring/rules/runbooks'"}},
		{"pilot", "monitoring.serviceMonitor.interval=often", []string{"'/monitoring/serviceMonitor/interval'"}},
		{"pilot", "monitoring.rules.noLeaderFor=1.5m", []string{"'/monitoring/rules/noLeaderFor'"}},
		{"pilot", "monitoring.dashboard.labels.a=b c", []string{"'/monitoring/dashboard/labels/a'"}},
		{"pilot", "image=", []string{"image is empty", "--set image="}},
		{"pilot", "caBundle.file=", []string{"caBundle is empty", "--set caBundle.configMap=NAME"}},
		{"pilot", "caBundle.configMap=x", []string{"caBundle has both configMap and file", "only one"}},
		{"pilot", "elections.enabled=false,replicas=2", []string{"replicas is 2", "elections.enabled=false"}},
		{"pilot", "autoscaling.enabled=true,replicas=2", []string{"replicas and autoscaling.enabled are set", "Remove replicas"}},
		{"pilot", "autoscaling.enabled=true,elections.enabled=false", []string{"elections.enabled=false", "autoscaling.enabled=false"}},
		{"pilot", "autoscaling.enabled=true,autoscaling.minReplicas=6", []string{"autoscaling.minReplicas is 6", "autoscaling.maxReplicas (5)"}},
		{"pilot", "autoscaling.enabled=true", []string{"resources.requests.cpu is empty", "--set resources.requests.cpu=100m"}},
		{"pilot", "elections.renewDeadline=30s", []string{"elections.renewDeadline is 30s", "less than elections.leaseDuration (30s)"}},
		{"pilot", "elections.leaseDuration=1m30s,elections.renewDeadline=0.025h", []string{"elections.renewDeadline is 0.025h", "(1m30s)"}},
		{"pilot", "elections.leaseDuration=30500ms", []string{"elections.leaseDuration is 30500ms", "whole seconds"}},
		{"pilot", "elections.renewDeadline=9s", []string{"elections.renewDeadline is 9s", "1.2 times elections.retryPeriod (7500ms)"}},
		{"pilot", "elections.retryPeriod=500ms", []string{"elections.retryPeriod is 500ms", "elections.lock=lease"}},
		{"pilot", "address=:65536", []string{"address is :65536", "between 1 and 65535"}},
		{"pilot", "debugAddress=:15014", []string{"address (:15014) and debugAddress (:15014) have the same port"}},
		{"pilot", "debugAddress=127.0.0.1:15014", []string{"have the same port", "Set another port"}},
		{"pilot", "elections.strategy=a b", []string{"'/elections/strategy'"}},
		{"pilot", "elections.coordinator=perhaps", []string{"'/elections/coordinator'", "want null or boolean"}},
		{"pilot", "elections.strategy=incumbent.dev/DefaultRevision", []string{"elections.lock is configmap", "elections.lock=lease"}},
		{"pilot", "args={--election-strategy=x}", []string{"args contains --election-strategy=x", "elections.strategy"}},
		{"pilot", "env.ENABLE_COORDINATOR=yes", []string{"env contains ENABLE_COORDINATOR", "elections"}},
		{"pilot", "fence.coordinated=true", []string{"elections.lock is configmap", "Remove fence.coordinated"}},
		{"pilot", "fence.coordinated=perhaps", []string{"'/fence/coordinated'", "want null or boolean"}},
		{"pilot", "args={--lock=lease}", []string{"args contains --lock=lease", "elections.lock"}},
		{"pilot", "args={--identity=x}", []string{"args contains --identity=x", "for each Pod"}},
		{"pilot", "env.ENABLE_WRITE_FENCE=yes", []string{"env contains ENABLE_WRITE_FENCE", "fence"}},
		{"pilot", "fence.set=istio-system", []string{"fence.set is istio-system", "pilot fence install"}},
		{"pilot", "revision=" + strings.Repeat("a", 40) + ",name=" + strings.Repeat("b", 20), []string{"fence.set", "more than 63", "--set fence.set=NAME"}},
		{"tags", "default=A", []string{"'/default'"}},
		{"tags", "tags.default=a", []string{"'/tags/default'"}},
		{"tags", "tags.prod=", []string{"'/tags/prod'"}},
	} {
		t.Run(c.chart+" "+c.set[:min(len(c.set), 40)], func(t *testing.T) {
			t.Parallel()
			args := []string{"--set", c.set}
			if c.chart == "pilot" {
				args = append([]string{"--set", "image=pilot,caBundle.file=/ca.pem"}, args...)
			}
			_, err := template(t, "stable", c.chart, args...)
			wantError(t, err, c.want...)
		})
	}
	_, err := template(t, "Stable.1", "pilot", "--set", "image=pilot,caBundle.file=/ca.pem")
	wantError(t, err) // the name is not a revision
	_, err = template(t, "v1.2", "pilot", "--set", "image=pilot,caBundle.file=/ca.pem")
	wantError(t, err, `revision is "v1.2", which is invalid`)
}

// Existing objects are not changed: Helm rejects the objects of other tools and releases.
func TestInstall_ExistingObjects(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	hook := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{
		Name: tagging.TagWebhook("theirs", p.namespace), Labels: map[string]string{"istio.io/tag": "theirs", "istio.io/rev": "old"},
	}}
	hooks := p.kube.AdmissionregistrationV1().MutatingWebhookConfigurations()
	if _, err := hooks.Create(t.Context(), hook, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer hooks.Delete(t.Context(), hook.Name, metav1.DeleteOptions{}) //nolint:errcheck // the cluster is deleted, too
	p.refused(t, tags("install", "tags", "--set", "tags.theirs=canary"), hook.Name, "cannot be imported", "invalid ownership metadata")
	p.mustHelm(t, tags("install", "tags", "--set", "default=absent")...)
	p.refused(t, tags("install", "more", "--set", "default=absent"), "cannot be imported", `current value is "tags"`)
	p.mustHelm(t, pilot("install", "stable")...)
	p.refused(t, pilot("install", "second", "--set", "revision=stable"), "cannot be imported", `current value is "stable"`)
	_, err := runHelm(t, "not-there", p.Kubeconfig(), pilot("install", "stable")...)
	wantError(t, err, `namespaces "not-there" not found`)
}
