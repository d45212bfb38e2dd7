package gitops

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/argoproj/argo-cd/gitops-engine/pkg/sync"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/admin"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// step is a step of an application that changes no lock. The steps have the names of docs/upgrade.md.
type step struct {
	name string
	do   func()
}

// No step of an application changes a lock or ends a term, and each later sync works.
func TestApplication(t *testing.T) {
	p := start(t)
	a := newArgo(p)
	p.apply = func(ctx context.Context, objects []*unstructured.Unstructured) ([]string, error) {
		return a.apply(ctx, objects)
	}
	terms := p.installed()
	p.steps(terms, []step{
		{"sync without a change", func() { p.mustSync(p.objects) }},
		{"kubectl scale", p.scaled},
		{"failing sync", p.failing},
		{"next sync", func() { p.mustSync(p.objects) }},
		{"prune", p.pruned},
		{"Replace=true", func() { p.replaced(a) }},
		{"self-heal of the default revision", p.healed},
		{"first sync after a chart with the Lease as a hook", p.oldHook},
		{"kubectl apply --prune", p.kubectlPrune},
	})
	p.marked(terms)
	p.unmarked(terms)
	p.transferred(p.locks())
	p.recreated()
	p.restored()
}

// installed applies the application, and returns the locks of its leaders.
func (p *plane) installed() map[string]lock {
	p.mustSync(p.objects)
	p.awaitReady(1)
	p.kubectl("", "scale", "deployment/pilot-stable", "--replicas=2")
	p.awaitReady(2)
	return p.awaitLeaders()
}

// steps runs steps, and fails the test if a lock changes.
func (p *plane) steps(terms map[string]lock, all []step) {
	for _, step := range all {
		began := time.Now()
		step.do()
		if now := p.locks(); !maps.Equal(now, terms) {
			p.t.Fatalf("%s: the locks are %v, were %v", step.name, now, terms)
		}
		p.t.Logf("%5.1f s  %s", time.Since(began).Seconds(), step.name)
	}
}

// scaled: the number of replicas is not in the application, so self-heal keeps it.
func (p *plane) scaled() {
	p.kubectl("", "scale", "deployment/pilot-stable", "--replicas=3")
	p.mustSync(p.objects)
	if n := *p.deployment().Spec.Replicas; n != 3 {
		p.t.Errorf("after a sync %d replicas", n)
	}
}

// failing: the API server rejects an object while the others are applied.
func (p *plane) failing() {
	bad := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "bad", "namespace": home}, "data": map[string]any{"a b": "c"},
	}}
	if failed := p.sync(append(slices.Clone(p.objects), bad)); len(failed) != 1 || !strings.Contains(failed[0], "a b") {
		p.t.Fatalf("failed objects: %q", failed)
	}
}

// pruned removes an object from the application and adds it again.
func (p *plane) pruned() {
	without := slices.DeleteFunc(slices.Clone(p.objects), func(o *unstructured.Unstructured) bool { return o.GetKind() == "PodDisruptionBudget" })
	exists := func() bool {
		all, err := p.kube.Kube().PolicyV1().PodDisruptionBudgets(home).List(p.t.Context(), metav1.ListOptions{})
		p.must(err)
		return len(all.Items) > 0
	}
	p.mustSync(without)
	harness.Until(p.t, "the object is pruned", func() bool { return !exists() })
	p.mustSync(p.objects)
	if !exists() {
		p.t.Error("the sync did not add the object again")
	}
}

// replaced: kubectl replace resets fields that the application does not have, so it has the number of replicas.
func (p *plane) replaced(a argo) {
	p.kubectl("", "annotate", "deployment/pilot-stable", "example.com/only=here")
	failed, err := a.apply(p.t.Context(), p.with("Deployment", func(o *unstructured.Unstructured) {
		p.must(unstructured.SetNestedField(o.Object, int64(3), "spec", "replicas"))
	}), sync.WithReplace(true))
	p.must(err)
	if d := p.deployment(); *d.Spec.Replicas != 3 || d.Annotations["example.com/only"] != "" || len(failed) > 0 {
		p.t.Errorf("after Replace=true %d replicas, annotations %v, failed: %q", *d.Spec.Replicas, d.Annotations, failed)
	}
}

// healed: self-heal sets the label that electionctl default set has changed. No candidate has the revision canary.
func (p *plane) healed() {
	p.setDefault("canary")
	harness.Until(p.t, "self-heal", func() bool {
		p.mustSync(p.objects)
		return p.defaultRevision() == "stable"
	})
}

// setDefault writes the default revision as electionctl default set does.
func (p *plane) setDefault(revision string) {
	label := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingWebhookConfiguration","metadata":{"name":"` + defaultTag + `","labels":{"istio.io/rev":"` + revision + `"}}}`
	force := true
	_, err := p.kube.Kube().AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(p.t.Context(), defaultTag, types.ApplyPatchType, []byte(label), metav1.PatchOptions{FieldManager: "helm", Force: &force})
	p.must(err)
}

func (p *plane) defaultRevision() string {
	hook, err := p.kube.Kube().AdmissionregistrationV1().MutatingWebhookConfigurations().Get(p.t.Context(), defaultTag, metav1.GetOptions{})
	p.must(err)
	return hook.Labels["istio.io/rev"]
}

const defaultTag = "istio-revision-tag-default"

// oldHook: earlier charts had the Lease as a hook, so it has their annotations.
func (p *plane) oldHook() {
	lease := `{"metadata":{"annotations":{"helm.sh/hook":"pre-install,pre-upgrade","helm.sh/hook-delete-policy":"hook-failed","` + tracker + `":"plane:coordination.k8s.io/Lease/istio-system/` + deploymentLock + `"}}}`
	_, err := p.kube.Kube().CoordinationV1().Leases(home).Patch(p.t.Context(), deploymentLock, types.MergePatchType, []byte(lease), metav1.PatchOptions{})
	p.must(err)
	p.mustSync(p.objects)
	p.failing()
	p.mustSync(p.objects)
}

// marked: Argo CD has deleted the Lease that an earlier chart had as a hook, and its finalizer keeps the object. The leader continues to lead.
func (p *plane) marked(before map[string]lock) {
	p.finalizers(`["argocd.argoproj.io/hook-finalizer"]`)
	p.kubectl("", "delete", "--wait=false", "lease/"+deploymentLock)
	renewed := func() time.Time {
		lease, err := p.kube.Kube().CoordinationV1().Leases(home).Get(p.t.Context(), deploymentLock, metav1.GetOptions{})
		p.must(err)
		return lease.Spec.RenewTime.Time
	}
	last := renewed()
	harness.Until(p.t, "a renewal", func() bool { return renewed().After(last) })
	p.mustSync(p.objects)
	now := p.locks()
	if l := now[deploymentLock]; !l.marked || l.uid != before[deploymentLock].uid || l.term != before[deploymentLock].term {
		p.t.Errorf("the marked lock is %v, was %v", l, before[deploymentLock])
	}
}

// unmarked: the command of electionctl doctor ends the deletion. The lock is deleted, and a new one has a leader.
func (p *plane) unmarked(before map[string]lock) {
	p.finalizers("null")
	var now map[string]lock
	harness.Until(p.t, "a new lock", func() bool {
		now = p.awaitLeaders()
		return now[deploymentLock].uid != before[deploymentLock].uid
	})
	for name, l := range now {
		if name != deploymentLock && l != before[name] {
			p.t.Errorf("lock %s is %v, was %v", name, l, before[name])
		}
	}
	p.mustSync(p.objects)
}

func (p *plane) finalizers(list string) {
	patch := []byte(`{"metadata":{"finalizers":` + list + `}}`)
	_, err := p.kube.Kube().CoordinationV1().Leases(home).Patch(p.t.Context(), deploymentLock, types.MergePatchType, patch, metav1.PatchOptions{})
	p.must(err)
}

// kubectlPrune applies all objects except one with kubectl, which prunes it.
func (p *plane) kubectlPrune() {
	var text strings.Builder
	for _, o := range p.objects {
		if o.GetKind() == "PodDisruptionBudget" {
			continue
		}
		content, err := yaml.Marshal(o.Object)
		p.must(err)
		text.WriteString("---\n" + string(content))
	}
	p.kubectl(text.String(), "apply", "-f", "-", "--prune", "-l", "app.kubernetes.io/part-of=incumbent", "--prune-allowlist=policy/v1/PodDisruptionBudget",
		"--prune-allowlist=core/v1/ConfigMap", "--prune-allowlist=coordination.k8s.io/v1/Lease")
	p.mustSync(p.objects)
}

// transferred: an operator transfers an election while the application syncs. Only the command changes the term, and its lock stays.
func (p *plane) transferred(before map[string]lock) {
	lease := &k8sresourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: home, Name: deploymentLock}, Client: p.kube.Kube().CoordinationV1()}
	pods, err := p.kube.Kube().CoreV1().Pods(home).List(p.t.Context(), metav1.ListOptions{LabelSelector: "istio.io/rev=stable"})
	p.must(err)
	to := ""
	for _, pod := range pods.Items {
		if !strings.Contains(before[deploymentLock].term, pod.Name) {
			to = pod.Name
		}
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	go func() {
		ended <- admin.Operator{Lock: lease, Requester: "test"}.Transfer(ctx, to, "", "maintenance", time.Minute)
	}()
	for running := true; running; {
		p.mustSync(p.objects)
		select {
		case err := <-ended:
			p.must(err)
			running = false
		default:
		}
	}
	after := p.awaitLeaders()
	p.mustSync(p.objects)
	if !maps.Equal(after, p.locks()) || !strings.Contains(after[deploymentLock].term, to) {
		p.t.Errorf("after the transfer to %s: %v, then %v", to, after, p.locks())
	}
	for name, l := range after {
		if l.uid != before[name].uid || name != deploymentLock && l != before[name] {
			p.t.Errorf("the transfer changed %s from %v to %v", name, before[name], l)
		}
	}
}

// recreated: kubectl replace --force deletes the Deployment with its Pods. The locks remain, and the new Pods acquire them.
func (p *plane) recreated() {
	before := p.locks()
	for _, o := range p.objects {
		if o.GetKind() == "Deployment" {
			content, err := yaml.Marshal(o.Object)
			p.must(err)
			p.kubectl(string(content), "replace", "--force", "-f", "-")
		}
	}
	p.awaitReady(1)
	for name, l := range p.awaitOthers(before) {
		if l.uid != before[name].uid {
			p.t.Errorf("kubectl replace --force recreated lock %s", name)
		}
	}
	p.mustSync(p.objects)
}

// awaitOthers waits until each election has a leader of another term.
func (p *plane) awaitOthers(before map[string]lock) (now map[string]lock) {
	harness.Until(p.t, "new leaders", func() bool {
		now = p.awaitLeaders()
		return !slices.ContainsFunc(slices.Collect(maps.Keys(now)), func(name string) bool { return now[name].term == before[name].term })
	})
	return now
}

// restored: a backup tool creates the locks with old records and new UIDs in a namespace without Pods, and then the application syncs.
func (p *plane) restored() {
	before := p.locks()
	backup := p.kubectl("", "get", "lease/"+deploymentLock, "configmap/istio-leader", "-o", "yaml")
	p.kubectl("", "scale", "deployment/pilot-stable", "--replicas=0")
	p.awaitReady(0)
	p.kubectl("", "delete", "lease/"+deploymentLock, "configmap/istio-leader")
	restored := &unstructured.UnstructuredList{}
	p.must(yaml.Unmarshal([]byte(backup), restored))
	for _, o := range restored.Items {
		o.SetResourceVersion("")
		o.SetUID("")
		content, err := yaml.Marshal(o.Object)
		p.must(err)
		p.kubectl(string(content), "create", "-f", "-")
	}
	p.kubectl("", "scale", "deployment/pilot-stable", "--replicas=1")
	p.awaitReady(1)
	for name, l := range p.awaitOthers(before) {
		if recreated := name == deploymentLock || name == "istio-leader"; recreated == (l.uid == before[name].uid) {
			p.t.Errorf("after the restore lock %s is %v, was %v", name, l, before[name])
		}
	}
	p.mustSync(p.objects)
}
