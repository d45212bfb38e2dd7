package diagnosis

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/tagging"
)

// A Gateway that is not programmed is reported with its cause, and explained with the elections whose leaders may deploy it.
func TestGateways(t *testing.T) {
	deploys := func(revision string) inspect.Election {
		return inspect.Election{Namespace: home, Name: "istio-gateway-deployment-" + revision}
	}
	in := &Input{Elections: []inspect.Election{deploys("canary"), deploys("stable"), {Namespace: home, Name: "istio-leader"}}, Gateways: []Gateway{}}
	if found := in.gateways(); len(found) != 1 || found[0].Severity != Well {
		t.Errorf("without Gateways: %+v", found)
	}
	const message = "Deployment gw-istio has too few available pods: FailedCreate: pods \"gw\" is forbidden: violates PodSecurity"
	in.Claims = map[string][]tagging.Claim{home: {{Tag: "prod", Revision: "stable", Kind: tagging.WebhookKind, Name: "istio-revision-tag-prod"}}}
	in.Gateways = []Gateway{{"shop", "gw", "prod", message}, {"shop", "other", "", "line\nbreak"}}
	found := in.gateways()
	want := []string{
		"istio-system/istio-gateway-deployment-stable: Gateway shop/gw is not programmed: " + message,
		"istio-system/istio-gateway-deployment-canary and istio-system/istio-gateway-deployment-stable: Gateway shop/other is not programmed: line break",
	}
	for i, f := range found {
		if f.String() != want[i] || f.Severity != Warning || !strings.HasPrefix(f.Command, "kubectl -n shop describe gateways") {
			t.Errorf("%+v, want %s", f, want[i])
		}
	}
	if of := Of(deploys("canary"), found); len(of) != 1 || !strings.Contains(of[0].Cause, "shop/other") {
		t.Errorf("explain: %+v", of)
	}
	if found := (&Input{}).gateways(); found != nil {
		t.Errorf("not read: %+v", found)
	}
}

// Objects that servers write and a GitOps tool applies are reported with the field to ignore and a command.
func TestGitOps(t *testing.T) {
	object := func(kind, name string, labels, annotations map[string]string) metav1.PartialObjectMetadata {
		o := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations}}
		if o.Kind = kind; kind != tagWebhook {
			o.Namespace = home
		}
		return o
	}
	with := func(key string) map[string]string { return map[string]string{key: "plane"} }
	const applied = ", which the servers create and write, so it can delete it and revert writes"
	const kustomization = "kustomize.toolkit.fluxcd.io/name"
	for name, test := range map[string]struct {
		objects                []metav1.PartialObjectMetadata
		cause, advice, command string
	}{
		"none": {[]metav1.PartialObjectMetadata{object("Lease", "istio-leader", with("app.kubernetes.io/name"), nil)}, "no GitOps tool applies objects that the servers write", "", ""},
		"lock, Argo CD": {
			[]metav1.PartialObjectMetadata{object("ConfigMap", "istio-leader", nil, with("argocd.argoproj.io/tracking-id"))},
			"istio-system/istio-leader: Argo CD applies ConfigMap istio-leader (argocd.argoproj.io/tracking-id)" + applied, "/metadata/annotations",
			"kubectl -n istio-system annotate configmap istio-leader argocd.argoproj.io/tracking-id-",
		},
		"members, Argo CD by label": {
			[]metav1.PartialObjectMetadata{
				object("Lease", "a", with("app.kubernetes.io/instance"), nil), object("Lease", "b", with("app.kubernetes.io/instance"), nil),
				object("Lease", "c", with("app.kubernetes.io/instance"), nil), object("Lease", "d", with("app.kubernetes.io/instance"), nil),
			},
			"Argo CD applies Lease a, b, c and 1 others (app.kubernetes.io/instance)" + applied, "/spec and /metadata/annotations",
			"kubectl -n istio-system label lease a b c d app.kubernetes.io/instance-",
		},
		"LeaseCandidate, Flux":        {[]metav1.PartialObjectMetadata{object("LeaseCandidate", "a", with(kustomization), nil)}, "Flux applies LeaseCandidate a (" + kustomization + ")" + applied, "/spec", "kubectl -n istio-system label leasecandidate a " + kustomization + "-"},
		"Gateway, Flux":               {[]metav1.PartialObjectMetadata{object("Deployment", "gw-istio", with("helm.toolkit.fluxcd.io/name"), nil)}, "Flux applies Deployment gw-istio (helm.toolkit.fluxcd.io/name)" + applied, "/spec", "kubectl -n istio-system label deployment gw-istio helm.toolkit.fluxcd.io/name-"},
		"default tag":                 {[]metav1.PartialObjectMetadata{object(tagWebhook, "istio-revision-tag-default", with("argocd.argoproj.io/instance"), nil)}, "Argo CD applies MutatingWebhookConfiguration istio-revision-tag-default (argocd.argoproj.io/instance) and sets the default revision back after electionctl default set", "ignore the field /metadata/labels/istio.io~1rev", ""},
		"default tag that Flux keeps": {[]metav1.PartialObjectMetadata{object(tagWebhook, "istio-revision-tag-default", with(kustomization), map[string]string{fluxKeeps: "IfNotPresent"})}, "no GitOps tool applies objects that the servers write", "", ""},
	} {
		in := &Input{Elections: []inspect.Election{{Namespace: home, Name: "istio-leader", Lock: inspect.ConfigMap}}, Written: test.objects}
		found := in.gitops()
		if len(found) != 1 || found[0].String() != test.cause || !strings.Contains(found[0].Advice, test.advice) || found[0].Command != test.command {
			t.Errorf("%s: %+v, want %s → %s", name, found, test.cause, test.command)
			continue
		}
		if severity := found[0].Severity; (severity == Well) != (test.advice == "") || !slices.Contains([]Severity{Well, Warning}, severity) {
			t.Errorf("%s: %s", name, severity)
		}
	}
}
