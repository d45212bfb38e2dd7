package gatewaydeploy

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

// report tells what is wrong with a Gateway when that is something else than before: in an Event on it, and in the
// log. nil stands for no problem.
func (c *Controller) report(gw *gateway.Gateway, of key, problems []*Problem) {
	var texts []string
	for _, p := range problems {
		if p != nil {
			texts = append(texts, p.Error())
		}
	}
	now := strings.Join(texts, "\n")
	c.mu.Lock()
	before := c.reported[of]
	if now == "" {
		delete(c.reported, of)
	} else {
		c.reported[of] = now
	}
	c.mu.Unlock()
	switch {
	case now == before:
	case now == "" && gw != nil:
		c.config.Logger.Info("Gateway can be deployed again", "gateway", of)
	default:
		for _, p := range problems {
			if p != nil {
				c.config.Logger.Warn("Gateway cannot be deployed as it is", "gateway", of, "reason", p.Reason, "problem", p.Message)
				c.config.Event(reference(gw), corev1.EventTypeWarning, p.Reason, "%s", p.Message)
			}
		}
	}
}

// failing is called when writes for a Gateway begin to fail.
func (c *Controller) failing(of key, err error) {
	if gw := c.gateways.Get(of.Namespace, of.Name); gw != nil {
		c.config.Event(reference(gw), corev1.EventTypeWarning, ReasonWriteFailed, "%v", err)
	}
}

// reference is what an Event is about.
func reference(gw *gateway.Gateway) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: gateway.GroupVersion.String(), Kind: "Gateway",
		Namespace: gw.Namespace, Name: gw.Name, UID: gw.UID, ResourceVersion: gw.ResourceVersion,
	}
}

// writeVersion notes on a Gateway that a controller of our version serves it.
func (c *Controller) writeVersion(ctx context.Context, self reconcile.Target[key, *gateway.Gateway], gw *gateway.Gateway) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": gw.ResourceVersion, "uid": gw.UID,
		"annotations": map[string]string{versionAnnotation: strconv.Itoa(controllerVersion)},
	}})
	if err != nil {
		return err
	}
	got, err := c.writer.Gateways(gw.Namespace).Patch(ctx, gw.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: ControllerName})
	if err := self.Answered(gw, got, err); err != nil {
		return fmt.Errorf("writing the controller version onto Gateway %s/%s: %w", gw.Namespace, gw.Name, err)
	}
	return nil
}
