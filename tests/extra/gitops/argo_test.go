package gitops

import (
	"context"

	"github.com/argoproj/argo-cd/gitops-engine/pkg/cache"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/engine"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/sync"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/sync/common"
	enginekube "github.com/argoproj/argo-cd/gitops-engine/pkg/utils/kube"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// tracker is the annotation of an object that an application contains.
const tracker = "argocd.argoproj.io/tracking-id"

func trackerOf(key enginekube.ResourceKey) string { return "plane:" + key.String() }

// tracked is the entry that the cache of the engine stores for an object.
type tracked struct{ by string }

// argo is the sync engine of Argo CD.
type argo struct{ engine.GitOpsEngine }

func newArgo(p *plane) argo {
	objects := cache.NewClusterCache(p.Admin(), cache.SetLogr(logr.Discard()), cache.SetPopulateResourceInfoHandler(func(o *unstructured.Unstructured, _ bool) (any, bool) {
		by := o.GetAnnotations()[tracker]
		return tracked{by}, by != ""
	}))
	a := argo{engine.NewEngine(p.Admin(), objects, engine.WithLogr(logr.Discard()))}
	stop, err := a.Run()
	p.must(err)
	p.t.Cleanup(stop)
	return a
}

// apply synchronizes the application with pruning.
func (a argo) apply(ctx context.Context, objects []*unstructured.Unstructured, options ...sync.SyncOpt) (failed []string, _ error) {
	for _, o := range objects {
		setAnnotation(o, tracker, trackerOf(enginekube.GetResourceKey(o)))
	}
	managed := func(r *cache.Resource) bool {
		return r.Info.(tracked).by == trackerOf(r.ResourceKey())
	}
	results, err := a.Sync(ctx, objects, managed, "1", home, append(options, sync.WithPrune(true), sync.WithLogr(logr.Discard()))...)
	for _, r := range results {
		if r.Status == common.ResultCodeSyncFailed || r.HookPhase == common.OperationFailed || r.HookPhase == common.OperationError {
			failed = append(failed, r.ResourceKey.Kind+" "+r.ResourceKey.Name+": "+r.Message)
		}
	}
	return failed, err
}

func setAnnotation(o *unstructured.Unstructured, name, value string) {
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[name] = value
	o.SetAnnotations(annotations)
}
