package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/internal/diagnosis"
	"incumbent.dev/incumbent/internal/members"
	"incumbent.dev/incumbent/internal/tagging"
)

const (
	// gatewayController is the controllerName of the classes of this project.
	gatewayController = "istio.io/gateway-controller"
	// ofGateway selects the objects of deployed Gateways.
	ofGateway = "gateway.istio.io/managed"
)

// gatewayList is a list of GatewayClasses or Gateways.
type gatewayList struct {
	Items []struct {
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			ControllerName, GatewayClassName string
		} `json:"spec"`
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	} `json:"items"`
}

// listGateways reads GatewayClasses or Gateways of all namespaces. A missing kind has no objects.
func (c *clients) listGateways(ctx context.Context, resource string) (list gatewayList, _ error) {
	raw, err := c.kube.Discovery().RESTClient().Get().AbsPath("/apis/gateway.networking.k8s.io/v1", resource).DoRaw(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return list, nil
	case err != nil:
		return list, err
	}
	return list, json.Unmarshal(raw, &list)
}

// readGateways reads the Gateways of this project that are not programmed.
func (c *clients) readGateways(ctx context.Context, in *diagnosis.Input) error {
	if !slices.ContainsFunc(in.Elections, diagnosis.Deploys) {
		return nil
	}
	classes, err := c.listGateways(ctx, "gatewayclasses")
	if err != nil {
		return err
	}
	own := map[string]bool{}
	for _, class := range classes.Items {
		own[class.Name] = class.Spec.ControllerName == gatewayController
	}
	gateways, err := c.listGateways(ctx, "gateways")
	if err != nil {
		return err
	}
	in.Gateways = []diagnosis.Gateway{}
	for _, g := range gateways.Items {
		programmed := meta.FindStatusCondition(g.Status.Conditions, "Programmed")
		switch {
		case !own[g.Spec.GatewayClassName] || programmed != nil && programmed.Status == metav1.ConditionTrue:
			continue
		case programmed == nil:
			programmed = &metav1.Condition{Message: "no controller has written its condition Programmed"}
		}
		in.Gateways = append(in.Gateways, diagnosis.Gateway{Namespace: g.Namespace, Name: g.Name, Label: g.Labels[tagging.Label], Message: programmed.Message})
	}
	return nil
}

// readWritten reads the metadata of objects that servers or operators write.
func (c *clients) readWritten(ctx context.Context, in *diagnosis.Input) error {
	in.Written = []metav1.PartialObjectMetadata{}
	for _, l := range in.Locks {
		if o, err := meta.Accessor(l.Snapshot.Object); err == nil && slices.Contains(in.Namespaces(), l.Namespace) {
			in.Written = append(in.Written, metadataOf(l.Kind, o))
		}
	}
	list := func(resource schema.GroupVersionResource, kind, namespace string, options metav1.ListOptions) error {
		found, err := c.meta.Resource(resource).Namespace(namespace).List(ctx, options)
		if err != nil {
			if apierrors.IsNotFound(err) { // the API server does not serve the kind
				return nil
			}
			return err
		}
		for i := range found.Items {
			in.Written = append(in.Written, metadataOf(kind, &found.Items[i]))
		}
		return nil
	}
	coordination := schema.GroupVersion{Group: "coordination.k8s.io", Version: "v1"}
	candidates := schema.GroupVersion{Group: "coordination.k8s.io", Version: "v1beta1"}.WithResource("leasecandidates")
	var errs []error
	for _, namespace := range in.Namespaces() {
		errs = append(errs, list(coordination.WithResource("leases"), "Lease", namespace, metav1.ListOptions{LabelSelector: members.Selector}),
			list(candidates, "LeaseCandidate", namespace, metav1.ListOptions{}))
	}
	deployments := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	errs = append(errs, list(deployments, "Deployment", metav1.NamespaceAll, metav1.ListOptions{LabelSelector: ofGateway}))
	hook, _, err := c.tag(ctx)
	if err == nil && hook.Name != "" {
		in.Written = append(in.Written, metadataOf("MutatingWebhookConfiguration", hook))
	}
	return errors.Join(append(errs, err)...)
}

// metadataOf returns what the diagnosis needs of an object.
func metadataOf(kind string, o metav1.Object) metav1.PartialObjectMetadata {
	return metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{Kind: kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), Labels: o.GetLabels(), Annotations: o.GetAnnotations()},
	}
}
