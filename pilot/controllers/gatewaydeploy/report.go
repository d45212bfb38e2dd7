package gatewaydeploy

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

// failing records an Event when writes for a Gateway start to fail.
func (c *Controller) failing(of key, err error) {
	if gw := c.gateways.Get(of.Namespace, of.Name); gw != nil {
		c.problems.Failed(reference(gw), ReasonWriteFailed, err)
	}
}

// reference returns the object of an Event.
func reference(gw *gateway.Gateway) *corev1.ObjectReference {
	return reconcile.Reference(gateway.GroupVersion.String(), "Gateway", gw)
}

// writeVersion writes the controller version to a Gateway. If it returns false without an error, the Gateway
// has changed and the next event causes a reconcile.
func (c *Controller) writeVersion(ctx context.Context, self reconcile.Target[key, *gateway.Gateway], gw *gateway.Gateway) (written bool, err error) {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": gw.ResourceVersion, "uid": gw.UID,
		"annotations": map[string]string{versionAnnotation: strconv.Itoa(controllerVersion)},
	}})
	if err != nil {
		return false, err
	}
	got, rejected := c.writer.Gateways(gw.Namespace).Patch(ctx, gw.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: ControllerName})
	if err := self.Answered(gw, got, rejected); err != nil {
		return false, fmt.Errorf("write controller version to Gateway %s/%s: %w", gw.Namespace, gw.Name, err)
	}
	return rejected == nil, nil
}
