package ctl

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

// tag creates the webhook of the default revision.
func (e *environment) tag(revision string, hooks int, labels map[string]string) {
	e.t.Helper()
	hook := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{
		Name: defaultTag, Labels: labels, Annotations: map[string]string{"meta.helm.sh/release-name": "tags", "meta.helm.sh/release-namespace": "istio-system"},
	}}
	none, url := admissionv1.SideEffectClassNone, "https://127.0.0.1:1"
	for range hooks {
		hook.Webhooks = append(hook.Webhooks, admissionv1.MutatingWebhook{
			Name: "rev.namespace.sidecar-injector.istio.io", SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionv1.WebhookClientConfig{URL: &url},
		})
	}
	e.hook(hook, revision)
}

// hook creates a webhook of a revision until the test ends.
func (e *environment) hook(hook *admissionv1.MutatingWebhookConfiguration, revision string) {
	e.t.Helper()
	hook.Labels[tagging.Label] = revision
	all := e.kube.AdmissionregistrationV1().MutatingWebhookConfigurations()
	e.must(all.Create(e.t.Context(), hook, metav1.CreateOptions{}))
	e.t.Cleanup(func() {
		if err := all.Delete(context.Background(), hook.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			e.t.Error(err)
		}
	})
}

func (e *environment) untag() {
	e.t.Helper()
	if err := e.kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(e.t.Context(), defaultTag, metav1.DeleteOptions{}); err != nil {
		e.t.Fatal(err)
	}
}

func TestDefault(t *testing.T) {
	e := newEnvironment(t)
	e.istiod("istio-leader", record)
	e.expect(e.run("default", "get"), Done, "none\n")
	e.expect(e.run("default", "set", "canary", "--yes"), NotFound, "ELECTION", "webhook istio-revision-tag-default not found")
	e.expect(e.run("default", "set", "Not_One", "--yes"), misused, "", `invalid revision "Not_One"`)

	e.tag("stable", 0, map[string]string{"app.kubernetes.io/part-of": "incumbent"})
	e.expect(e.run("default", "get"), Done, "stable\n")
	e.expect(e.run("default", "set", "stable", "--yes"), Done, "stable is already the default revision")
	e.expect(e.run("default", "set", "canary"), misused, "ELECTION", "use --yes")
	e.expect(e.run("default", "get"), Done, "stable\n")
	e.expect(e.answer("y\n", true, "default", "set", "canary"), Done, "The default revision is canary; it was stable", "will change to canary; it is now stable")
	e.expect(e.run("default", "get"), Done, "canary\n")
	e.untag()

	e.tag("stable", 1, map[string]string{"app.kubernetes.io/part-of": "incumbent"})
	e.expect(e.run("default", "set", "canary", "--yes"), Refused, "ELECTION", "istioctl tag set default --revision canary --overwrite")
	e.untag()
	e.tag("stable", 0, map[string]string{})
	e.expect(e.run("default", "set", "canary", "--yes"), Refused, "", "istioctl tag set default --revision canary --overwrite")
	e.expect(e.run("default", "get"), Done, "stable\n")

	e.untag()
	e.tag("", 0, map[string]string{}) // the revision without a name, as elections read it
	e.expect(e.run("default", "get"), Done, "default\n")
	e.untag()
	e.tag("stable", 0, map[string]string{})

	// The webhook of the namespace counts first.
	e.hook(&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{
		Name: tagging.DefaultTagWebhook(e.namespace), Labels: map[string]string{tagging.TagLabel: "default", "app.kubernetes.io/part-of": "incumbent"},
	}}, "east")
	e.expect(e.run("default", "set", "west", "--yes"), Done, "The default revision is west; it was east")
	e.expect(e.run("default", "get"), Done, "west\n")
	e.untag()
}

func TestDoctor_Tags(t *testing.T) {
	e := newEnvironment(t)
	e.istiod("work", record)
	e.expect(e.run("doctor"), Done, "each tag has one revision")
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "prod", Labels: map[string]string{tagging.TagLabel: "prod-" + e.namespace, tagging.Label: "stable"}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}},
	}
	e.must(e.kube.CoreV1().Services(e.namespace).Create(t.Context(), service, metav1.CreateOptions{}))
	e.hook(&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{
		Name: "team-b-" + e.namespace, Labels: map[string]string{tagging.TagLabel: "prod-" + e.namespace},
	}}, "canary")
	result := e.run("doctor")
	e.expect(result, unhealthy, "is claimed by several revisions: revision stable (Service prod) counts, canary (MutatingWebhookConfiguration team-b-NAMESPACE) does not")
	e.expect(result, unhealthy, "→ kubectl label mutatingwebhookconfiguration team-b-NAMESPACE istio.io/tag-\n")
}

func TestDoctor(t *testing.T) {
	e := newEnvironment(t)
	e.elect("work", "a", "stable", leaderelection.LockTypeLease, nil)
	e.shows("work", "a", "leads")
	healthy := e.run("doctor")
	e.expect(healthy, Done, "elections: 1; each has one readable lock")
	e.expect(healthy, Done, "each election has a leader\n")
	e.expect(healthy, Done, "no annotation prevents a leader")
	e.expect(healthy, Done, "no default revision")
	e.expect(healthy, Done, " may: read Lease locks")
	e.expect(healthy, Done, "no fence installed")

	e.istiod("istio-status-leader", `{"holderIdentity":`)
	e.terminating("istio-status-leader")
	e.istiod("istio-leader", record)
	e.clientGo("istio-leader", "operator-0")
	e.clientGo("short", "operator-0")
	e.lock("paused", record, "incumbent.dev/hold", `{"holder":"istiod-stable-1","transitions":3,"seconds":60,"requester":"eve","reason":"pause"}`)
	ahead := strings.ReplaceAll(record, "2026-01-02T03:05:05Z", time.Now().Add(90*time.Minute+30*time.Second).UTC().Format(time.RFC3339))
	e.istiod("ahead", strings.ReplaceAll(ahead, "istiod", "fast"))
	e.istiod("istio-node-untaint", short(record))
	e.clientGo("idle", "")
	e.lock("wrong", record, "incumbent.dev/hold", "{")
	e.shows("istio-node-untaint", "expired (renewed ")
	result := e.run("doctor")
	for _, want := range []string{
		"NAMESPACE/istio-status-leader has no leader: record of the lock is unreadable",
		"NAMESPACE/istio-leader: the ConfigMap has the holder istiod-stable-1 and the Lease has the holder operator-0, so two leaders can be active",
		"NAMESPACE/istio-node-untaint has no leader: expired (renewed ",
		"NAMESPACE/istio-leader has no live leader: pod istiod-stable-1 does not exist; other candidates: unknown",
		"→ electionctl explain -n NAMESPACE istio-leader\n",
		"NAMESPACE/istio-status-leader: metadata.finalizers: the ConfigMap is being deleted, and the term of its leader ends when its finalizers (example.com/wait) are removed",
		"no leader is a pod",
		"NAMESPACE/idle has no leader: free",
		"paused: incumbent.dev/hold: pause by eve: ",
		"wrong: incumbent.dev/hold: the value is invalid, so candidates ignore it",
		"electionctl -n NAMESPACE resume paused",
		"s ahead of the API server",
		"the clock of fast-stable-1 is 1h30m", // rounded down, because the API server stamps a write later
	} {
		e.expect(result, unhealthy, want, "problems: ")
	}
	e.expect(e.run("doctor", "-o", "json"), unhealthy, `"kind": "Finding"`)
	e.expect(e.run("explain", "paused"), Done, "Warning: NAMESPACE/paused: incumbent.dev/hold: pause by eve: ")
}

// terminating deletes a ConfigMap lock, which a finalizer keeps until the test ends.
func (e *environment) terminating(name string) {
	e.t.Helper()
	all := e.kube.CoreV1().ConfigMaps(e.namespace)
	finalizers := func(list string) error {
		patch := []byte(`{"metadata":{"finalizers":` + list + `}}`)
		_, err := all.Patch(context.Background(), name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
	e.must(nil, finalizers(`["example.com/wait"]`))
	e.must(nil, all.Delete(e.t.Context(), name, metav1.DeleteOptions{}))
	e.t.Cleanup(func() { e.must(nil, finalizers("null")) })
}

func TestDoctor_Cluster(t *testing.T) {
	e := newEnvironment(t)
	e.running("istiod-stable-1", "stable")
	e.istiod("work", current(record))
	e.tag("stable", 0, map[string]string{})
	validator := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: tagging.DefaultValidator, Labels: map[string]string{"istio.io/rev": "canary"}}}
	validators := e.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	e.must(validators.Create(t.Context(), validator, metav1.CreateOptions{}))
	result := e.run("doctor")
	e.expect(result, unhealthy, "istio-revision-tag-default has revision stable, but istiod-default-validator has canary")
	e.expect(result, unhealthy, "renewals of service account NAMESPACE/default have FlowSchema service-accounts, priority level workload-low, and share")
	if err := validators.Delete(t.Context(), tagging.DefaultValidator, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.expect(e.run("doctor"), Done, "the default revision is stable")
	e.untag()

	other := e.cluster.Namespace(t)
	e.istiod("istio-leader", record)
	in := *e
	in.namespace = other
	in.istiod("istio-leader", record)
	e.expect(e.run("doctor"), Done, "istio-leader is held in namespaces [")
	in.annotate("istio-leader", recordKey, short(record))
	in.shows("istio-leader", "expired")
	if got := e.run("doctor"); strings.Contains(got.out, other) { // other tests use the election too
		t.Error(got.out)
	}
}

func TestFence(t *testing.T) {
	e := newEnvironment(t)
	e.istiod("work", current(record))
	e.expect(e.run("fence", "render", "--revisions", "stable", "--service-account", "pilot"), Done, "namespace: NAMESPACE")
	e.expect(e.run("fence", "install", "--revisions", "stable", "--service-account", "pilot", "--wait", "0"), Failed, "service account NAMESPACE/pilot exists: not found", "nothing was changed")
	untested := e.run("fence", "install", "--revisions", "stable", "--service-account", "pilot", "--wait", "0", "--keep")
	e.expect(untested, Done, "the fence was not tested, because of --wait 0; test it: electionctl fence verify -n NAMESPACE")
	_, test, _ := strings.Cut(strings.TrimSpace(strings.ReplaceAll(untested.out, "NAMESPACE", e.namespace)), "electionctl ")
	e.expect(e.run(strings.Fields(test)...), Failed, "unclear  service account NAMESPACE/pilot exists: not found")
	result := e.run("doctor")
	e.expect(result, unhealthy, "which is missing: all guarded writes are rejected")
	e.expect(result, unhealthy, " fence policies have bindings")
	unguarded := newEnvironment(t)
	unguarded.istiod("work", current(record))
	unguarded.expect(unguarded.run("doctor"), Done, "no fence installed for namespace NAMESPACE: only the client")
	permanent := fence.KeepPrefix + e.namespace + ".configmap"
	if err := e.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(t.Context(), permanent, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.expect(e.run("doctor"), unhealthy, "policy incumbent-fence-keep.NAMESPACE.configmap or its binding is missing")
	e.expect(e.run("fence", "remove", "--revisions", "stable"), Done, "")
	e.expect(e.run("doctor"), Done, "no fence installed")
}

// TestFence_Discovered checks a set with the options of the chart by its label only.
func TestFence_Discovered(t *testing.T) {
	e := newEnvironment(t)
	e.expect(e.run("fence", "verify"), Failed, "", "no fence is installed for namespace NAMESPACE")
	e.pod("pilot-1", "stable") // creates the service account
	e.istiod("istio-namespace-controller-election", strings.ReplaceAll(record, "istiod-stable-1", "pilot-1"))
	installs := []string{"fence", "install", "--set", "release", "--revisions", "stable", "--other-service-account", "pilot-*,istiod"}
	e.expect(e.run(append(installs, "--service-account", "defualt", "--allow-unclear")...), Failed, "FAILS    pod pilot-1, which holds ", "nothing was changed")
	e.expect(e.run(append(installs, "--service-account", "default")...), Failed, "removed", "The installation was undone") // some checks are unclear
	e.expect(e.run("fence", "verify"), Failed, "", "no fence is installed for namespace NAMESPACE")
	e.expect(e.run(append(installs, "--service-account", "default", "--allow-unclear")...), Done, "applied")
	installed := e.run("fence", "verify", "--allow-unclear", "-v").out
	e.expect(e.run(append(installs, "--service-account", "default", "--mode", "warn")...), Failed, "applied", "The installation was undone")
	if got := e.run("fence", "verify", "--allow-unclear", "-v").out; got != installed {
		t.Errorf("after an update that was undone:\n%s\nbefore:\n%s", got, installed)
	}
	e.expect(e.run("fence", "verify", "--allow-unclear", "-v"), Done, "holds    policy incumbent-fence.release.")
	if got := e.run("fence", "verify", "--allow-unclear"); strings.Contains(got.out, "holds") {
		t.Errorf("checks that passed: %s", got.out)
	}
	e.expect(e.run("fence", "verify"), Failed, "unclear ", "use --allow-unclear")
	e.expect(e.run("fence", "verify", "--allow-unclear", "--strict"), Failed, "unclear ", "--strict requires all")
	admission := e.kube.AdmissionregistrationV1()
	policies, err := admission.ValidatingAdmissionPolicies().List(t.Context(), metav1.ListOptions{LabelSelector: "incumbent.dev/fence=release"})
	if err != nil {
		t.Fatal(err)
	}
	gone := ""
	for _, p := range policies.Items {
		if strings.Contains(p.Name, ".lock.") && strings.Contains(p.Name, "istio-namespace") {
			gone = p.Name
		}
	}
	if err := errors.Join(admission.ValidatingAdmissionPolicies().Delete(t.Context(), gone, metav1.DeleteOptions{}),
		admission.ValidatingAdmissionPolicyBindings().Delete(t.Context(), gone, metav1.DeleteOptions{})); err != nil {
		t.Fatal(err)
	}
	const repair = "electionctl fence install -n NAMESPACE --set release --stored"
	failed := e.run("fence", "verify", "--allow-unclear")
	e.expect(failed, Failed, "FAILS    policy "+e.steady(gone)+" is installed: ", "1 of ")
	e.expect(failed, Failed, repair)
	if strings.Contains(failed.errs, gone) {
		t.Errorf("stderr repeats the failures: %s", failed.errs)
	}
	e.expect(e.run("doctor"), unhealthy, "policy "+e.steady(gone)+" and its binding are missing")
	e.expect(e.run("doctor"), unhealthy, "→ "+repair)
	e.expect(e.run("fence", "install", "--set", "release", "--stored", "--allow-unclear"), Done, "applied")
	e.expect(e.run("fence", "verify", "--allow-unclear"), Done, "")
	release := []byte(`{"metadata":{"annotations":{"meta.helm.sh/release-name":"stable","meta.helm.sh/release-namespace":"istio-system"}}}`)
	first := policies.Items[0].Name
	if first == gone {
		first = policies.Items[1].Name
	}
	e.must(admission.ValidatingAdmissionPolicies().Patch(t.Context(), first, types.MergePatchType, release, metav1.PatchOptions{}))
	if err := admission.ValidatingAdmissionPolicyBindings().Delete(t.Context(), gone, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.expect(e.run("doctor"), unhealthy, "→ helm upgrade stable deploy/charts/pilot --namespace istio-system --reset-then-reuse-values\n")
	e.expect(e.run("fence", "remove", "--set", "nothing"), Done, `fence "nothing" is not installed; release can be selected with --set`)
	other := []string{"fence", "install", "--set", "other", "--revisions", "stable", "--service-account", "default", "--allow-unclear"}
	e.expect(e.run(other...), Failed, "", "replace its guards with --replace")
	e.expect(e.run(append(other, "--replace")...), Done, "applied")
	e.expect(e.run("fence", "remove", "--set", "release"), Done, `fence "release" is not installed; other can be selected with --set`)
	e.expect(e.run("fence", "remove", "--set", "other"), Done, "removed")
}

func TestPage(t *testing.T) {
	e := newEnvironment(t)
	e.expect(e.run("page", "nothing"), NotFound, "", "pod nothing not found in namespace NAMESPACE")
	e.pod("pilot", "stable")
	e.member("pilot", "stable", "uid", 0, true, true)
	e.istiod("istio-leader", record)
	e.completes("pilot\n", "page", "")
	e.expect(e.run("page", "pilot"), Refused, "", "pod pilot is Pending, not running")
	e.starts("pilot")
	e.expect(e.run("page", "pilot"), Failed, "", "forward to pod pilot: ") // it has no node
}
