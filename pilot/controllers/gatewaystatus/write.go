package gatewaystatus

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

const statusSubresource = "status"

// now returns the current time with the precision of the API server.
func now() metav1.Time { return metav1.Now().Rfc3339Copy() }

// reconcileClass creates the class istio if it is missing, and updates the status of a class.
func (c *Controller) reconcileClass(ctx context.Context, k key) error {
	target := c.classCache.At(k, reconcile.Ref{Name: k.name})
	have, known := target.Latest()
	switch {
	case !known:
		return nil
	case have == nil && (k.name != reconcile.GatewayClass || c.config.LeaveClass):
		return nil
	case have == nil:
		created, err := c.api.GatewayClasses().Create(ctx, newClass(), metav1.CreateOptions{})
		if err == nil {
			defer c.Enqueue(k) // to write its status, after the answer is recorded
		}
		return target.Answered(nil, created, err, "create GatewayClass "+k.name)
	case have.Spec.ControllerName != reconcile.GatewayController || have.DeletionTimestamp != nil:
		return nil
	case !c.isMine(have.ObjectMeta) && judged(have):
		return nil
	}
	wanted := classStatus(have)
	wanted.Conditions = timed(have.Status.Conditions, wanted.Conditions, now())
	if equality.Semantic.DeepEqual(have.Status, wanted) {
		return nil
	}
	got, err := c.api.GatewayClasses().Patch(ctx, k.name, types.MergePatchType, mergePatch(have, map[string]any{
		"conditions": wanted.Conditions, "supportedFeatures": wanted.SupportedFeatures,
	}), metav1.PatchOptions{}, statusSubresource)
	return target.Answered(have, got, err, "update status of GatewayClass "+k.name)
}

// keepAddresses keeps the addresses of a Gateway while its Service is recreated. Otherwise external-dns deletes the records.
func (c *Controller) keepAddresses(g *gateway.Gateway, wanted *gateway.GatewayStatus) {
	var source types.UID
	if service := owned(g, c.services(g.Namespace, g.Name)); service != nil {
		source = service.UID
	}
	unsupported := slices.ContainsFunc(wanted.Conditions, func(c metav1.Condition) bool {
		return c.Reason == string(gateway.GatewayReasonUnsupportedAddress)
	})
	if c.grace.Keeps(key{gatewayKind, g.Namespace, g.Name}, source, len(wanted.Addresses) > 0) && !unsupported {
		wanted.Addresses = g.Status.Addresses
	}
}

// reconcileGateway updates the status of a Gateway.
func (c *Controller) reconcileGateway(ctx context.Context, k key) error {
	target := c.gatewayCache.At(k, reconcile.Ref{Namespace: k.namespace, Name: k.name})
	have, known := target.Latest()
	if !known {
		return nil
	}
	if have == nil || have.DeletionTimestamp != nil || !active(c.namespace(k.namespace)) {
		c.problems.Report(k, nil)
		if have == nil {
			c.grace.Forget(k)
		}
		return nil
	}
	c.problems.Report(k, reference(k, have), unknownClass(c, have), unknownRevision(c, have))
	if !ours(c, have) {
		return nil
	}
	wanted := gatewayStatus(c, have)
	c.keepAddresses(have, &wanted)
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
	got, err := c.api.Gateways(k.namespace).Patch(ctx, k.name, types.MergePatchType, mergePatch(have, map[string]any{
		"addresses": wanted.Addresses, "conditions": wanted.Conditions, "listeners": wanted.Listeners,
	}), metav1.PatchOptions{}, statusSubresource)
	return target.Answered(have, got, err, fmt.Sprintf("update status of %s %s/%s", k.kind, k.namespace, k.name))
}

// reconcileRoute updates the entries for the Gateways of the revision in the status of a route.
func (c *Controller) reconcileRoute(ctx context.Context, k key) error {
	target := c.routeCaches[k.kind].At(k, reconcile.Ref{Namespace: k.namespace, Name: k.name})
	have, known := target.Latest()
	if !known {
		return nil
	}
	if have == nil || have.DeletionTimestamp != nil || !active(c.namespace(k.namespace)) {
		c.problems.Report(k, nil)
		return nil
	}
	wanted := routeParents(c, have)
	removed, err := c.obsoleteEntries(ctx, have, wanted)
	if err != nil {
		return err
	}
	change, left := changeParents(have, wanted, removed, now())
	c.problems.Report(k, reference(k, have), full(left))
	if change == nil {
		return nil
	}
	got, err := c.api.routes(routeKinds[k.kind], k.namespace).Patch(ctx, k.name, change.kind, change.body, metav1.PatchOptions{}, statusSubresource)
	return target.Answered(have, got, err, fmt.Sprintf("update status of %s %s/%s", k.kind, k.namespace, k.name))
}

// obsoleteEntries returns the indexes of the entries of this controller that must be removed.
func (c *Controller) obsoleteEntries(ctx context.Context, r *route, wanted []gateway.RouteParentStatus) (all []int, err error) {
	pairs := paired(r, wanted)
	for i, have := range r.Status.Parents {
		if have.ControllerName != reconcile.GatewayController || pairs[i] >= 0 {
			continue
		}
		remove, verify := obsolete(c, r, have.ParentRef)
		if verify {
			name, _ := parentGateway(r, have.ParentRef)
			_, err := c.api.Gateways(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
			if remove = apierrors.IsNotFound(err); err != nil && !remove {
				return nil, fmt.Errorf("get Gateway %s: %w", name, err)
			}
		}
		if remove {
			all = append(all, i)
		}
	}
	return all, nil
}

// mergePatch returns a merge patch of status fields.
func mergePatch(have metav1.Object, status map[string]any) []byte {
	return reconcile.MergePatch(have, nil, map[string]any{"status": status})
}

// patch is the type and body of a patch.
type patch struct {
	kind types.PatchType
	body []byte
}

// changeParents returns the patch that writes the wanted entries and removes entries by index, or nil. left
// is the number of entries that exceed the limit. The patch does not contain other entries, so that their
// unknown fields stay too.
func changeParents(r *route, wanted []gateway.RouteParentStatus, removed []int, now metav1.Time) (change *patch, left int) {
	var ops []map[string]any
	present := r.Status.Parents
	pairs := paired(r, wanted)
	for i, have := range present {
		if pairs[i] < 0 {
			continue
		}
		entry := wanted[pairs[i]]
		entry.Conditions = timed(have.Conditions, entry.Conditions, now)
		if !equality.Semantic.DeepEqual(have, entry) {
			ops = append(ops, map[string]any{"op": "replace", "path": fmt.Sprint("/status/parents/", i), "value": entry})
		}
	}
	for _, i := range slices.Backward(removed) { // so that earlier indexes stay valid
		ops = append(ops, map[string]any{"op": "remove", "path": fmt.Sprint("/status/parents/", i)})
	}
	room := maxParents - len(present) + len(removed)
	var added []gateway.RouteParentStatus
	for j, entry := range wanted {
		switch {
		case slices.Contains(pairs, j):
		case len(added) == room:
			left++
		default:
			entry.Conditions = timed(nil, entry.Conditions, now)
			added = append(added, entry)
			ops = append(ops, map[string]any{"op": "add", "path": "/status/parents/-", "value": entry})
		}
	}
	if len(present) == 0 && len(added) > 0 { // the list or the status may not exist
		return &patch{types.MergePatchType, mergePatch(r, map[string]any{"parents": added})}, left
	}
	return jsonPatch(r, ops), left
}

// jsonPatch returns a JSON patch, guarded by the version of the object, or nil if there are no operations.
func jsonPatch(have metav1.Object, ops []map[string]any) *patch {
	if len(ops) == 0 {
		return nil
	}
	guard := map[string]any{"op": "replace", "path": "/metadata/resourceVersion", "value": have.GetResourceVersion()}
	body, _ := json.Marshal(slices.Insert(ops, 0, guard)) // cannot fail
	return &patch{types.JSONPatchType, body}
}

// full returns a problem if entries exceed the limit, or nil.
func full(left int) *problem {
	if left == 0 {
		return nil
	}
	return problemf(reasonStatusFull, "status.parents is limited to %d entries; entries of %s are missing because of entries of other controllers", maxParents, reconcile.GatewayController)
}

// paired returns, for each existing entry, the index of its wanted entry, or -1. No two entries have the same.
func paired(r *route, wanted []gateway.RouteParentStatus) []int {
	all := make([]int, len(r.Status.Parents))
	for i, have := range r.Status.Parents {
		all[i] = -1
		for j, entry := range wanted {
			if have.ControllerName == reconcile.GatewayController && !slices.Contains(all[:i], j) && sameRef(r, entry.ParentRef, have.ParentRef) {
				all[i] = j
				break
			}
		}
	}
	return all
}

// plainRef returns a reference with explicit defaults.
func plainRef(r *route, ref gateway.ParentReference) gateway.ParentReference {
	ref.Group = new(ptr.Deref(ref.Group, gateway.GroupName))
	ref.Kind = new(ptr.Deref(ref.Kind, gatewayKind))
	ref.Namespace = new(ptr.Deref(ref.Namespace, gateway.Namespace(r.Namespace)))
	return ref
}
