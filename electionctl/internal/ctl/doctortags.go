package ctl

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pkg/revisions"
)

// tagLabel names a tag.
const tagLabel = "istio.io/tag"

// conflicts reports tags that several revisions claim.
func conflicts(ctx context.Context, x *examination) error {
	options := metav1.ListOptions{LabelSelector: tagLabel}
	hooks, err := x.c.kube.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, options)
	if err != nil {
		return err
	}
	services, err := x.c.kube.CoreV1().Services(x.c.at).List(ctx, options)
	if err != nil {
		return err
	}
	for _, namespace := range x.namespaces() {
		var claims []revisions.Claim
		for _, s := range services.Items {
			if claim, ok := revisions.ServiceClaim(&s); ok && s.Namespace == namespace {
				claims = append(claims, claim)
			}
		}
		for _, h := range hooks.Items {
			if claim, ok := revisions.WebhookClaim(&h, namespace); ok {
				claims = append(claims, claim)
			}
		}
		_, conflicts := revisions.Resolve(namespace, claims)
		for _, c := range conflicts {
			for _, other := range c.Others {
				f := finding{Verdict: problem, Message: c.String(), Fix: other.DeleteCommand() + ", or change its label " + revisionLabel}
				if !slices.Contains(x.found, f) { // a webhook claims a tag in several namespaces
					x.found = append(x.found, f)
				}
			}
		}
	}
	return nil
}
