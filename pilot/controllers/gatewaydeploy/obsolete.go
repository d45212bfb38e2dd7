package gatewaydeploy

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

// obsolete returns the deletions of former objects of a Gateway. Objects with another name remain until the
// current objects serve.
func (v view) obsolete(steps []step) (deletions []step) {
	complete := len(steps) > 0 && !slices.ContainsFunc(steps, func(s step) bool { return s.Action != actionLeave || s.Problem != nil })
	current := func(kind Kind, name string) bool {
		return slices.ContainsFunc(steps, func(s step) bool { return s.Kind == kind && s.Name == name })
	}
	workload := namesOf(v.Gateway).workload
	for _, s := range v.former(current) {
		if complete && (s.Name == workload || v.serves(workload)) {
			deletions = append(deletions, s)
		}
	}
	return deletions
}

// abandoned returns the deletions of the objects of a Gateway that this controller does not deploy any more:
// the Gateway refers to another deployment, or another controller has programmed it.
func (v view) abandoned() []step {
	gw := v.Gateway
	programmed := apimeta.FindStatusCondition(gw.Status.Conditions, string(gateway.GatewayConditionProgrammed))
	switch {
	case v.Class == nil && gw.Spec.GatewayClassName != reconcile.GatewayClass:
		return nil
	case v.Class != nil && v.Class.Spec.ControllerName != reconcile.GatewayController:
		if programmed == nil || programmed.Status != metav1.ConditionTrue || programmed.ObservedGeneration != gw.Generation {
			return nil
		}
		return slices.DeleteFunc(v.former(nothing), func(s step) bool {
			return s.read.GetLabels()[gateway.GatewayClassNameLabelKey] == LabelValue(gw.Spec.GatewayClassName)
		})
	case manual(gw):
		return v.former(nothing)
	}
	return nil
}

func nothing(Kind, string) bool { return false }

// former returns the deletions of the objects that this controller wrote for the Gateway, except the current
// objects and the objects that other Gateways use.
func (v view) former(current func(Kind, string) bool) (deletions []step) {
	for _, kind := range slices.Backward(Kinds) {
		for _, o := range v.Owned(kind) {
			ours := len(ourFields(o.GetManagedFields())) > 0 && o.GetDeletionTimestamp() == nil &&
				slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == v.Gateway.UID })
			if !ours || current(kind, o.GetName()) || v.Shared(kind, o.GetName()) {
				continue
			}
			if latest := v.Existing(kind, o.GetName()); latest != nil && latest.GetUID() == o.GetUID() {
				deletions = append(deletions, step{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName(), Action: actionDelete, Document: v.marked(latest), read: latest})
			}
		}
	}
	return deletions
}

// marked returns the patch that sets the label of the revision on an object before its deletion, or nil if the object has the label. So
// the fence guards the deletion also while the lock is missing.
func (v view) marked(o metav1.Object) map[string]any {
	if o.GetLabels()[RevisionLabel] == v.Revision {
		return nil
	}
	return map[string]any{"metadata": map[string]any{
		"uid": string(o.GetUID()), "resourceVersion": o.GetResourceVersion(), "labels": map[string]any{RevisionLabel: v.Revision},
	}}
}

// serves reports whether the Pods of the current Deployment are available and the Service has an address, if
// a former Service has an address.
func (v view) serves(workload string) bool {
	deployment, deployed := v.Existing(Deployment, workload).(*appsv1.Deployment)
	service, _ := v.Existing(Service, workload).(*corev1.Service)
	if !deployed || service == nil || !rolledOut(deployment) {
		return false
	}
	return addressed(service) || service.Spec.Type != corev1.ServiceTypeLoadBalancer ||
		!slices.ContainsFunc(v.Owned(Service), func(o metav1.Object) bool {
			former, ok := o.(*corev1.Service)
			return ok && addressed(former)
		})
}

func addressed(service *corev1.Service) bool { return len(service.Status.LoadBalancer.Ingress) > 0 }

// rolledOut reports whether all Pods of a Deployment have the current version and a Pod is available.
func rolledOut(d *appsv1.Deployment) bool {
	if d.Spec.Replicas != nil && *d.Spec.Replicas == 0 {
		return true
	}
	return d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas == d.Status.Replicas && d.Status.AvailableReplicas > 0
}
