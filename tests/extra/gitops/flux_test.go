package gitops

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/pkg/ssa"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

const fluxGroup = "kustomize.toolkit.fluxcd.io"

// flux applies as Flux's kustomize-controller does: with its library, its field manager, its options and an inventory.
type flux struct {
	*ssa.ResourceManager
	// inventory are the objects of the last apply that did not fail.
	inventory []*unstructured.Unstructured
}

func newFlux(p *plane) *flux {
	config := p.Admin()
	web, err := rest.HTTPClientFor(config)
	p.must(err)
	mapper, err := apiutil.NewDynamicRESTMapper(config, web)
	p.must(err)
	c, err := client.New(config, client.Options{HTTPClient: web, Mapper: mapper})
	p.must(err)
	poller := polling.NewStatusPoller(c, mapper, polling.Options{})
	return &flux{ResourceManager: ssa.NewResourceManager(c, poller, ssa.Owner{Field: "kustomize-controller", Group: fluxGroup})}
}

// apply applies objects and deletes objects of the inventory that are missing.
func (f *flux) apply(ctx context.Context, objects []*unstructured.Unstructured) (failed []string, _ error) {
	f.SetOwnerLabels(objects, "plane", "flux-system")
	options := ssa.DefaultApplyOptions()
	options.WaitInterval = 100 * time.Millisecond
	options.ExclusionSelector = map[string]string{fluxGroup + "/reconcile": "disabled", fluxGroup + "/ssa": "Ignore"}
	options.IfNotPresentSelector = map[string]string{fluxGroup + "/ssa": "IfNotPresent"}
	options.ForceSelector = map[string]string{fluxGroup + "/force": "enabled"}
	if _, err := f.ApplyAllStaged(ctx, objects, options); err != nil {
		return []string{err.Error()}, ctx.Err()
	}
	obsolete := slices.DeleteFunc(slices.Clone(f.inventory), func(o *unstructured.Unstructured) bool {
		return slices.ContainsFunc(objects, func(other *unstructured.Unstructured) bool {
			return o.GroupVersionKind() == other.GroupVersionKind() && o.GetNamespace() == other.GetNamespace() && o.GetName() == other.GetName()
		})
	})
	f.inventory = objects
	_, err := f.DeleteAll(ctx, obsolete, ssa.DeleteOptions{
		PropagationPolicy: metav1.DeletePropagationBackground, Inclusions: f.GetOwnerLabels("plane", "flux-system"),
		Exclusions: map[string]string{fluxGroup + "/prune": "disabled", fluxGroup + "/reconcile": "disabled"},
	})
	return nil, err
}

// No apply by Flux changes a lock or ends a term, and each later one works.
func TestFlux(t *testing.T) {
	p := start(t)
	f := newFlux(p)
	p.apply = f.apply
	terms := p.installed()
	p.steps(terms, []step{
		{"apply without a change", func() { p.mustSync(p.objects) }},
		{"kubectl scale", p.scaled},
		{"failing apply", p.failing},
		{"next apply", func() { p.mustSync(p.objects) }},
		{"prune", p.pruned},
		{"correction of the default revision", p.healed},
		{"default revision with ssa: IfNotPresent", p.defaultKept},
		{"first apply after a kustomization with the Lease", func() { p.inInventory(f) }},
	})
	p.overQuota()
	p.transferred(terms)
	p.recreated()
}

// overQuota: a Gateway reports why the API server rejects its Pods.
func (p *plane) overQuota() {
	p.kubectl("", "create", "namespace", "shop")
	p.kubectl(`
apiVersion: v1
kind: ResourceQuota
metadata: {name: none, namespace: shop}
spec: {hard: {pods: 0}}
`, "--namespace=shop", "apply", "-f", "-")
	p.kubectl("", "--namespace=shop", "patch", "resourcequota/none", "--subresource=status", "--type=merge", "-p", `{"status":{"hard":{"pods":"0"},"used":{"pods":"0"}}}`)
	harness.Until(p.t, "the quota is in effect", func() bool {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}}
		_, err := p.kube.Kube().CoreV1().Pods("shop").Create(p.t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "exceeded quota")
	})
	p.kubectl(`
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw, namespace: shop}
spec: {gatewayClassName: istio, listeners: [{name: http, port: 80, protocol: HTTP}]}
`, "--namespace=shop", "apply", "-f", "-")
	harness.Until(p.t, "the Gateway reports the quota", func() bool {
		message := p.kubectl("", "--namespace=shop", "get", "gateway/gw", "-o", `jsonpath={.status.conditions[?(@.type=="Programmed")].message}`)
		return strings.Contains(message, "FailedCreate: ") && strings.Contains(message, "exceeded quota")
	})
}

// defaultKept: Flux keeps the default revision that electionctl has set if the webhook has the annotation of docs/upgrade.md.
func (p *plane) defaultKept() {
	objects := p.with("MutatingWebhookConfiguration", func(o *unstructured.Unstructured) { setAnnotation(o, fluxGroup+"/ssa", "IfNotPresent") })
	p.mustSync(objects)
	p.setDefault("canary")
	p.mustSync(objects)
	if revision := p.defaultRevision(); revision != "canary" {
		p.t.Errorf("Flux set the default revision to %s", revision)
	}
	p.setDefault("stable")
}

// inInventory: an earlier kustomization contained the Lease, so Flux deletes it, unless the Lease has the annotation of docs/upgrade.md.
func (p *plane) inInventory(f *flux) {
	leases := p.kube.Kube().CoordinationV1().Leases(home)
	owned := `{"metadata":{"labels":{"` + fluxGroup + `/name":"plane","` + fluxGroup + `/namespace":"flux-system"},"annotations":{"` + fluxGroup + `/prune":"disabled"}}}`
	_, err := leases.Patch(p.t.Context(), deploymentLock, types.MergePatchType, []byte(owned), metav1.PatchOptions{})
	p.must(err)
	lease := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"namespace": home, "name": deploymentLock}}}
	f.inventory = append(f.inventory, lease)
	p.mustSync(p.objects)
}
