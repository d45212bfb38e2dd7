package gatewaystatus

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

const statusOf = "status"

// now is the time as the API server would keep it.
func now() metav1.Time { return metav1.Now().Rfc3339Copy() }

// reconcileClass makes the class istio where it is missing, and writes the status of classes that are ours.
func (c *Controller) reconcileClass(ctx context.Context, k key) error {
	target := c.classCache.At(k, reconcile.Ref{Name: k.name})
	have, known := target.Latest()
	switch {
	case !known:
		return nil
	case have == nil && (k.name != ClassName || c.config.LeaveClass):
		return nil
	case have == nil:
		made, err := c.api.GatewayClasses().Create(ctx, newClass(), metav1.CreateOptions{})
		if err := target.Answered(nil, made, err); err != nil {
			return fmt.Errorf("creating GatewayClass %s: %w", k.name, err)
		}
		if err == nil {
			c.loop.Enqueue(k) // it has no status yet
		}
		return nil
	case have.Spec.ControllerName != ControllerName || have.DeletionTimestamp != nil || !c.isMine(have.ObjectMeta):
		return nil
	}
	wanted := classStatus(have)
	wanted.Conditions = timed(have.Status.Conditions, wanted.Conditions, now())
	if equality.Semantic.DeepEqual(have.Status, wanted) {
		return nil
	}
	got, err := c.api.GatewayClasses().Patch(ctx, k.name, types.MergePatchType, merged(have, map[string]any{
		"conditions": wanted.Conditions, "supportedFeatures": wanted.SupportedFeatures,
	}), metav1.PatchOptions{}, statusOf)
	if err := target.Answered(have, got, err); err != nil {
		return fmt.Errorf("writing the status of GatewayClass %s: %w", k.name, err)
	}
	return nil
}

// reconcileGateway writes the status of a Gateway that is ours.
func (c *Controller) reconcileGateway(ctx context.Context, k key) error {
	target := c.gatewayCache.At(k, reconcile.Ref{Namespace: k.namespace, Name: k.name})
	have, known := target.Latest()
	if !known {
		return nil
	}
	if have == nil || have.DeletionTimestamp != nil || !lives(c.namespace(k.namespace)) {
		c.problems.Report(k, nil)
		return nil
	}
	c.problems.Report(k, reference(k, have), unknownClass(c, have))
	if !ours(c, have) {
		return nil
	}
	wanted := gatewayStatus(c, have)
	at := now()
	wanted.Conditions = timed(have.Status.Conditions, wanted.Conditions, at)
	for i, l := range wanted.Listeners {
		var before []metav1.Condition
		for _, b := range have.Status.Listeners {
			if b.Name == l.Name {
				before = b.Conditions
			}
		}
		wanted.Listeners[i].Conditions = only(before, l.Conditions, at)
	}
	if equality.Semantic.DeepEqual(have.Status.Addresses, wanted.Addresses) && equality.Semantic.DeepEqual(have.Status.Conditions, wanted.Conditions) &&
		equality.Semantic.DeepEqual(have.Status.Listeners, wanted.Listeners) {
		return nil
	}
	got, err := c.api.Gateways(k.namespace).Patch(ctx, k.name, types.MergePatchType, merged(have, map[string]any{
		"addresses": wanted.Addresses, "conditions": wanted.Conditions, "listeners": wanted.Listeners,
	}), metav1.PatchOptions{}, statusOf)
	if err := target.Answered(have, got, err); err != nil {
		return fmt.Errorf("writing the status of Gateway %s/%s: %w", k.namespace, k.name, err)
	}
	return nil
}

// reconcileRoute writes our entries of a route's status.
func (c *Controller) reconcileRoute(ctx context.Context, k key) error {
	target := c.routeCache.At(k, reconcile.Ref{Namespace: k.namespace, Name: k.name})
	have, known := target.Latest()
	if !known {
		return nil
	}
	if have == nil || have.DeletionTimestamp != nil || !lives(c.namespace(k.namespace)) || !mine(c, have.ObjectMeta) {
		c.problems.Report(k, nil)
		return nil
	}
	change, left := changeParents(have, routeParents(c, have), now())
	c.problems.Report(k, reference(k, have), full(left))
	if change == nil {
		return nil
	}
	got, err := c.api.HTTPRoutes(k.namespace).Patch(ctx, k.name, change.kind, change.body, metav1.PatchOptions{}, statusOf)
	if err := target.Answered(have, got, err); err != nil {
		return fmt.Errorf("writing the status of HTTPRoute %s/%s: %w", k.namespace, k.name, err)
	}
	return nil
}

// merged is a merge patch of some fields of a status, which holds for the version of the object alone.
func merged(have metav1.Object, status map[string]any) []byte {
	body, _ := json.Marshal(map[string]any{ // which cannot fail
		"metadata": map[string]any{"resourceVersion": have.GetResourceVersion()}, "status": maps.Clone(status),
	})
	return body
}

// patch is a change to be sent.
type patch struct {
	kind types.PatchType
	body []byte
}

// changeParents is the change that gives a route's status our entries, nil when it has them. left is
// how many find no room: those of other controllers are not ours to remove. What is theirs is not in
// the change: so it stays as it is stored, also where this program's types know less than that.
func changeParents(route *gateway.HTTPRoute, wanted []gateway.RouteParentStatus, now metav1.Time) (change *patch, left int) {
	var ops []map[string]any
	present, written := route.Status.Parents, make([]bool, len(wanted))
	var gone []int
	for i, have := range present {
		if have.ControllerName != ControllerName {
			continue
		}
		j := indexOf(wanted, written, route, have.ParentRef)
		if j < 0 {
			gone = append(gone, i)
			continue
		}
		written[j] = true
		entry := wanted[j]
		entry.Conditions = timed(have.Conditions, entry.Conditions, now)
		if !equality.Semantic.DeepEqual(have, entry) {
			ops = append(ops, map[string]any{"op": "replace", "path": fmt.Sprint("/status/parents/", i), "value": entry})
		}
	}
	for _, i := range backwards(gone) { // so that what is before keeps its index
		ops = append(ops, map[string]any{"op": "remove", "path": fmt.Sprint("/status/parents/", i)})
	}
	room := maxParents - len(present) + len(gone)
	var fresh []gateway.RouteParentStatus
	for j, entry := range wanted {
		switch {
		case written[j]:
		case len(fresh) == room:
			left++
		default:
			entry.Conditions = timed(nil, entry.Conditions, now)
			fresh = append(fresh, entry)
			ops = append(ops, map[string]any{"op": "add", "path": "/status/parents/-", "value": entry})
		}
	}
	if len(present) == 0 && len(fresh) > 0 { // there may be no list, nor a status, to add to
		return &patch{types.MergePatchType, merged(route, map[string]any{"parents": fresh})}, left
	}
	return jsonPatch(route, ops), left
}

// jsonPatch is a patch of these operations, which holds for the version of the object alone; nil if there are none.
func jsonPatch(have metav1.Object, ops []map[string]any) *patch {
	if len(ops) == 0 {
		return nil
	}
	guard := map[string]any{"op": "replace", "path": "/metadata/resourceVersion", "value": have.GetResourceVersion()}
	body, _ := json.Marshal(slices.Insert(ops, 0, guard)) // which cannot fail
	return &patch{types.JSONPatchType, body}
}

// full says that entries of ours find no room in a route's status, nil when none is left.
func full(left int) *reconcile.Problem {
	if left == 0 {
		return nil
	}
	return reconcile.Problemf(ReasonStatusFull, "status.parents has room for %d entries and is full of other controllers': some of %s are left out", maxParents, ControllerName)
}

// indexOf is the wanted entry for a parent, of those that are not written yet; -1 for none.
func indexOf(wanted []gateway.RouteParentStatus, written []bool, route *gateway.HTTPRoute, parent gateway.ParentReference) int {
	for j, entry := range wanted {
		if !written[j] && equality.Semantic.DeepEqual(plainRef(route, entry.ParentRef), plainRef(route, parent)) {
			return j
		}
	}
	return -1
}

// plainRef is a reference with its defaults.
func plainRef(route *gateway.HTTPRoute, ref gateway.ParentReference) gateway.ParentReference {
	group, kind := valueOr(ref.Group, gateway.GroupName), valueOr(ref.Kind, gatewayKind)
	namespace := valueOr(ref.Namespace, gateway.Namespace(route.Namespace))
	ref.Group, ref.Kind, ref.Namespace = &group, &kind, &namespace
	return ref
}

func backwards(all []int) []int {
	out := make([]int, 0, len(all))
	for i := len(all) - 1; i >= 0; i-- {
		out = append(out, all[i])
	}
	return out
}
