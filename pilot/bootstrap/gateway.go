package bootstrap

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/pilot/controllers/gatewaydeploy"
	"incumbent.dev/incumbent/pilot/controllers/gatewaystatus"
	"incumbent.dev/incumbent/pkg/kube"
)

// gatewayKinds returns resources of the Gateway API.
func gatewayKinds(resources ...string) (kinds []schema.GroupVersionResource) {
	for _, resource := range resources {
		kinds = append(kinds, schema.GroupVersionResource{Group: gatewayv1.GroupName, Version: gatewayv1.GroupVersion.Version, Resource: resource})
	}
	return kinds
}

func gatewayStatus(client kube.Client, config Config, tools tools) (job, error) {
	return gatewaystatus.New(client, gatewaystatus.Config{
		Tags: tools.tags, LeaveClass: config.DisableGatewayClass, Event: tools.events.Eventf, Logger: tools.log,
	})
}

func gatewayDeployment(client kube.Client, config Config, tools tools) (job, error) {
	c, err := gatewaydeploy.New(client, gatewaydeploy.Config{
		Namespace: config.Namespace, Revision: config.Revision, OverlayFields: config.GatewayOverlayFields, Objects: config.GatewayObjects, IsMine: tools.tags.IsMine, Await: tools.tags.AwaitCurrent,
		Event: tools.events.Eventf, Logger: tools.log,
	})
	if err != nil {
		return nil, err
	}
	tools.tags.AddHandler(func(sets.Set[string]) { c.EnqueueAll() })
	return c, nil
}

// gatewayDeploymentWrites selects the objects for Gateways by their common label. The other write of the controller, its
// version on a Gateway, cannot be selected.
var gatewayDeploymentWrites = []fence.Guard{
	{Group: "apps", Resources: []string{"deployments"}, Labels: managedByUs, Own: ofRevision},
	{Resources: []string{"services"}, Labels: managedByUs, Own: ofRevision},
	{Resources: []string{"serviceaccounts"}, Labels: managedByUs, Own: ofRevision},
	{Group: "autoscaling", Resources: []string{"horizontalpodautoscalers"}, Labels: managedByUs, Own: ofRevision},
	{Group: "policy", Resources: []string{"poddisruptionbudgets"}, Labels: managedByUs, Own: ofRevision},
	{Group: "networking.k8s.io", Resources: []string{"networkpolicies"}, Labels: managedByUs, Own: ofRevision},
}

var ofRevision = map[string]string{gatewaydeploy.RevisionLabel: fence.RevisionWord}

var managedByUs = map[string]string{gatewaydeploy.ManagedLabel: gatewaydeploy.ManagedBy}
