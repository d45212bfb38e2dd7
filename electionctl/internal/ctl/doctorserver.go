package ctl

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection"
)

// clusterWide are those of the elections that we know whose leader writes in all namespaces.
var clusterWide = map[string]bool{
	leaderelection.NamespaceController: true, leaderelection.ServiceExportController: true, leaderelection.IngressController: true,
	leaderelection.GatewayStatusController: true, leaderelection.StatusController: true, leaderelection.AnalyzeController: true,
	leaderelection.NodeUntaintController: true, leaderelection.ClusterTrustBundleController: true, leaderelection.InferencePoolController: true,
	leaderelection.IPAutoallocateController: true,
}

func appendNew(all []string, s string) []string {
	if slices.Contains(all, s) {
		return all
	}
	return append(all, s)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// right is one that a command needs.
type right struct {
	attributes authorizationv1.ResourceAttributes
	what       string
}

func rights(ctx context.Context, x *examination) (findings []finding, _ error) {
	const coordination, admission = "coordination.k8s.io", "admissionregistration.k8s.io"
	needed := []right{
		{authorizationv1.ResourceAttributes{Verb: "list", Group: coordination, Resource: "leases"}, "see elections by Lease"},
		{authorizationv1.ResourceAttributes{Verb: "list", Resource: "configmaps"}, "see elections by ConfigMap"},
		{authorizationv1.ResourceAttributes{Verb: "list", Resource: "events"}, "history"},
		{authorizationv1.ResourceAttributes{Verb: "get", Group: admission, Resource: "mutatingwebhookconfigurations", Name: defaultTag}, "see the default revision"},
		{authorizationv1.ResourceAttributes{Verb: "update", Group: coordination, Resource: "leases"}, "orders about elections by Lease"},
		{authorizationv1.ResourceAttributes{Verb: "update", Resource: "configmaps"}, "orders about elections by ConfigMap"},
		{authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods", Subresource: "portforward"}, "page"},
	}
	var may []string
	for _, r := range needed {
		r.attributes.Namespace = x.namespace
		review, err := x.c.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &r.attributes},
		}, metav1.CreateOptions{})
		if err != nil {
			return findings, err
		}
		if review.Status.Allowed {
			may = append(may, r.what)
			continue
		}
		a := r.attributes
		findings = append(findings, finding{
			Verdict: warning, What: fmt.Sprintf("you may not %s %s, for: %s", a.Verb, strings.TrimSuffix(a.Resource+"/"+a.Subresource, "/"), r.what),
			WayOut: "ask for a role with that right, if you need it",
		})
	}
	if len(may) > 0 {
		findings = append(findings, finding{Verdict: well, What: "you may: " + strings.Join(may, ", ")})
	}
	return findings, nil
}

// apartClocks is how far clocks may be apart before it is worth a word.
const apartClocks = 3 * time.Second

func clock(ctx context.Context, x *examination) ([]finding, error) {
	before := time.Now() //nolint:forbidigo // the machine's clock is examined
	server, err := x.c.serverTime(ctx)
	if err != nil {
		return nil, err
	}
	here := before.Add(time.Since(before) / 2) //nolint:forbidigo // the same
	findings := []finding{clockFinding(here.Sub(server))}
	for _, e := range x.elections {
		if ahead := e.Renewed.Sub(server); e.Led() && ahead > apartClocks {
			findings = append(findings, finding{
				Verdict: warning, What: fmt.Sprintf("%s/%s: the clock of %s is %v ahead of the API server's", e.Namespace, e.Name, e.Holder, ahead.Round(time.Second)),
				WayOut: "set the clock of its node (NTP); elections do not depend on it, logs and certificates do",
			})
		}
	}
	return findings, nil
}

func clockFinding(offset time.Duration) finding {
	if offset.Abs() <= apartClocks {
		return finding{Verdict: well, What: "this machine's clock and the API server's agree within a few seconds"}
	}
	return finding{
		Verdict: warning, What: fmt.Sprintf("this machine's clock is %v off the API server's", offset.Round(time.Second)),
		WayOut: "set it (NTP); what this program prints as its own time is off by that much",
	}
}

// defaultValidator is Istio's webhook that checks configuration; it belongs to the default revision.
const defaultValidator = "istiod-default-validator"

func tags(ctx context.Context, x *examination) ([]finding, error) {
	hook, err := x.c.tag(ctx)
	if err != nil {
		return nil, err
	}
	tag := hook.Labels[revisionLabel]
	validator, err := x.c.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, defaultValidator, metav1.GetOptions{})
	switch {
	case err == nil && validator.Labels[revisionLabel] != tag:
		return []finding{{
			Verdict: problem, What: fmt.Sprintf("%s is of revision %s and %s of %s", defaultTag, or(tag, "none"), defaultValidator, or(validator.Labels[revisionLabel], "none")),
			WayOut: "run what was not finished: istioctl tag set default --revision " + or(tag, "REVISION") + " --overwrite",
		}}, nil
	case err != nil && !apierrors.IsNotFound(err):
		return nil, err
	case tag == "":
		return []finding{{Verdict: warning, What: "there is no default revision: who came first leads, of whichever revision", WayOut: "install the chart tags, or istioctl tag set default --revision REVISION"}}, nil
	}
	for _, e := range x.elections {
		if e.Revision == tag {
			return []finding{{Verdict: well, What: "the default revision is " + tag}}, nil
		}
	}
	if len(x.elections) == 0 {
		return []finding{{Verdict: well, What: "the default revision is " + tag}}, nil
	}
	return []finding{{Verdict: warning, What: "the default revision is " + tag + ", and no leader here is of it", WayOut: name() + " plan --default-revision " + tag}}, nil
}
