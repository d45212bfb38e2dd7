package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/pilot/controllers/namespace"
	"incumbent.dev/incumbent/tests/upgrade/verdict"
	"incumbent.dev/incumbent/tests/upgrade/workload"
)

// AwaitWanted waits until every object is in its desired state, and returns the verdict of that moment. While the load
// is on, it ignores the objects of the writer: one of them has always just been changed.
func (r *Rollout) AwaitWanted(ctx context.Context) (verdict.Verdict, error) {
	var last []verdict.Difference
	err := r.Await(ctx, "every object is in its desired state", func(ctx context.Context) (bool, error) {
		all, err := r.differences(ctx)
		last = slices.DeleteFunc(all, func(d verdict.Difference) bool { return r.loaded && workload.Wrote(d.Namespace) })
		return err == nil && len(last) == 0, err
	})
	if err != nil {
		return verdict.Verdict{}, fmt.Errorf("%w: %v", err, last)
	}
	return r.Judge()
}

// differences returns the objects that are not in their desired state.
func (r *Rollout) differences(ctx context.Context) ([]verdict.Difference, error) {
	all := metav1.ListOptions{}
	tag, err := r.Kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, tagging.DefaultTagWebhook(Namespace), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	var o verdict.Objects
	var errs [6]error
	o.Namespaces, errs[0] = r.Kube.CoreV1().Namespaces().List(ctx, all)
	o.Bundles, errs[1] = r.Kube.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + bundleName})
	o.Ingresses, errs[2] = r.Kube.NetworkingV1().Ingresses("").List(ctx, all)
	o.Deployments, errs[3] = r.Kube.AppsV1().Deployments("").List(ctx, all)
	if !r.options.WithoutGateways {
		o.Gateways, errs[4] = r.gateways.Gateways("").List(ctx, all)
		o.Routes, errs[5] = r.gateways.HTTPRoutes("").List(ctx, all)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	wanted := verdict.Wanted{
		BundleKey: bundleKey, Bundle: r.bundle, Excluded: namespace.DefaultExcluded(), IngressAddress: r.address, DefaultRevision: tag.Labels[tagging.Label],
	}
	return wanted.Differences(o), nil
}
