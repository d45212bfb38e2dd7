package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"incumbent.dev/incumbent/pkg/revisions"
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
		{"pilot", "pod.containers[0].name=x", []string{"'/pod/containers'"}},
		{"pilot", "env.A=1", []string{"'/env/A'", "want string"}},
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
		{"tags", "force=1", []string{"'/force'", "want boolean"}},
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

// Existing objects are not changed.
func TestInstall_ExistingObjects(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	hook := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{
		Name: revisions.TagWebhook("theirs", p.namespace), Labels: map[string]string{"istio.io/tag": "theirs", "istio.io/rev": "old"},
	}}
	hooks := p.kube.AdmissionregistrationV1().MutatingWebhookConfigurations()
	if _, err := hooks.Create(t.Context(), hook, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer hooks.Delete(t.Context(), hook.Name, metav1.DeleteOptions{}) //nolint:errcheck // the cluster is deleted, too
	p.refused(t, tags("install", "tags", "--set", "tags.theirs=canary,force=true"),
		"tag theirs (webhook "+hook.Name+", for revision old) was not created by this chart", "istioctl tag set theirs --revision canary --overwrite")
	p.mustHelm(t, tags("install", "tags", "--set", "default=absent,force=true")...)
	p.refused(t, tags("install", "more", "--set", "default=absent,force=true"), "tag default belongs to release tags in namespace "+p.namespace, "helm upgrade tags")

	labels := map[string]string{"app": "pilot", "istio.io/rev": "mine", "app.kubernetes.io/part-of": "incumbent"}
	none := int32(0)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "pilot-mine", Labels: labels}, Spec: appsv1.DeploymentSpec{
		Replicas: &none, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "pilot", Image: "pilot"}}}},
	}}
	if _, err := p.kube.AppsV1().Deployments(p.namespace).Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.refused(t, pilot("install", "mine"), "revision mine already exists and belongs to no Helm release", "pilot-mine")
	_, err := runHelm(t, "not-there", p.Kubeconfig(), pilot("install", "stable")...)
	wantError(t, err, `namespaces "not-there" not found`)
	// This cluster has no Gateway API definitions.
	notes := p.mustHelm(t, pilot("install", "stable")...)
	for _, want := range []string{"does not serve gateway.networking.k8s.io/v1 GatewayClass, Gateway, ReferenceGrant. ", "Revision stable of pilot is in namespace " + p.namespace} {
		if !strings.Contains(notes, want) {
			t.Errorf("missing %q in: %s", want, notes)
		}
	}
}

// The notes name old Gateway API definitions, unless the release does not need them.
func TestInstall_OldGatewayAPI(t *testing.T) {
	p := newPlace(t)
	client, err := dynamic.NewForConfig(p.Admin())
	if err != nil {
		t.Fatal(err)
	}
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	kinds := map[string]string{"GatewayClass": "gatewayclasses", "Gateway": "gateways", "ReferenceGrant": "referencegrants"}
	for kind, plural := range kinds {
		if _, err := definitions.Create(t.Context(), oldDefinition(t, kind, plural), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	p.awaitGatewayAPI(t, 4)
	const line = "serves %s of gateway.networking.k8s.io as v1beta1, not as v1. The controllers for Gateways wait. Install Gateway API 1.5 or newer. To disable the controllers:\n"
	for _, c := range []struct{ set, older string }{
		{"gatewayAPI.enabled=true", "GatewayClass, ReferenceGrant"}, {"gatewayAPI.status=false", "GatewayClass"}, {"gatewayAPI.enabled=false", ""},
	} {
		notes := p.mustHelm(t, pilot("upgrade", "stable", "--install", "--set", "replicas=0", "--set", c.set)...)
		if c.older == "" && strings.Contains(notes, "gateway.networking.k8s.io") || c.older != "" && !strings.Contains(notes, fmt.Sprintf(line, c.older)) || strings.Contains(notes, "does not serve") {
			t.Errorf("with %s: %s", c.set, notes)
		}
	}
	for _, plural := range kinds {
		if err := definitions.Delete(t.Context(), plural+gatewayGroup, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	p.awaitGatewayAPI(t, 0) // other tests need a cluster without them
}

const gatewayGroup = ".gateway.networking.k8s.io"

// oldDefinition returns the definition of a kind. Only Gateway is served as v1.
func oldDefinition(t *testing.T, kind, plural string) *unstructured.Unstructured {
	t.Helper()
	text := fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %s, annotations: {api-approved.kubernetes.io: "unapproved, for a test"}},
spec: {group: gateway.networking.k8s.io, scope: Namespaced, names: {kind: %s, plural: %s},
versions: [{name: v1, served: %t, storage: true, schema: {openAPIV3Schema: {type: object}}}, {name: v1beta1, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}]}}`,
		plural+gatewayGroup, kind, plural, kind == "Gateway")
	content := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &content); err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}

// awaitGatewayAPI waits until the API server lists so many kinds and versions of the Gateway API. It reads the same list as
// Helm. Other paths change earlier.
func (p place) awaitGatewayAPI(t *testing.T, want int) {
	t.Helper()
	eventually(t, "the listed definitions change", func(context.Context) (bool, string) {
		_, lists, err := p.kube.Discovery().ServerGroupsAndResources()
		got := 0
		for _, list := range lists {
			if strings.HasPrefix(list.GroupVersion, gatewayGroup[1:]) {
				got += len(list.APIResources)
			}
		}
		return got == want && len(lists) > 0, fmt.Sprint(got, err)
	})
}
