package gatewaydeploy

import (
	"cmp"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// step compares one document with the existing object.
// autoscaled reports whether an autoscaler sets the replicas.
func (v view) step(kind Kind, called names, document map[string]any, autoscaled bool) step {
	s := step{Kind: kind, Namespace: v.Gateway.Namespace, Name: called.of(kind), Action: actionLeave, Document: document}
	present := v.Existing(kind, s.Name)
	s.read = present
	if present != nil {
		keepSelector(present, document)
		v.keepType(present, document)
	}
	replicas := any(nil)
	if kind == Deployment && autoscaled {
		replicas = withoutReplicas(present, document)
	}
	if err := seal(document); err != nil {
		s.Problem = problemf(ReasonInvalidTemplate, "%s: %s: %v", v.Template.source, kind, err)
		return s
	}
	if replicas != nil {
		_ = unstructured.SetNestedField(document, replicas, "spec", "replicas") // cannot fail
	}
	if present == nil {
		s.Action = actionCreate
		return s
	}
	chosen := kind == ServiceAccount && called.chosenAccount // may exist already and be shared
	if s.Problem = v.conflict(s, present, chosen); s.Problem != nil {
		return s
	}
	if _, managed := present.GetLabels()[ManagedLabel]; !managed || !ownedBy(present, v.Gateway) || present.GetDeletionTimestamp() != nil {
		return s
	}
	same, err := kind.upToDate(present, document)
	if err != nil {
		s.Problem = problemf(reasonWriteFailed, "%v", err)
		return s
	}
	if !same {
		s.Action = actionApply
		s.Claim = created(present)
		object := unstructured.Unstructured{Object: document}
		object.SetResourceVersion(present.GetResourceVersion())
		object.SetUID(present.GetUID()) // prevents recreation if it was deleted
	}
	return s
}

// conflict returns the problem of an existing object that is not managed, or belongs to another Gateway.
func (v view) conflict(s step, present metav1.Object, chosen bool) *Problem {
	_, managed := present.GetLabels()[ManagedLabel]
	switch {
	case !managed && !chosen:
		return problemf(ReasonNotManaged, "%s %s/%s exists without label %s and is not changed; delete it, or set another name with annotation %s",
			s.Kind, s.Namespace, s.Name, ManagedLabel, NameOverride)
	case managed && !chosen && !ownedBy(present, v.Gateway):
		return problemf(reasonNameTaken, "%s %s/%s belongs to Gateway %s; set another name with annotation %s",
			s.Kind, s.Namespace, s.Name, cmp.Or(OwnerName(present), present.GetLabels()[gateway.GatewayNameLabelKey]), NameOverride)
	}
	return nil
}

// withoutReplicas removes the replicas of a Deployment that an autoscaler scales, and returns the replicas
// to write. While this controller owns the field, it must repeat the current number, because the API server
// resets a field that its only owner removes. A new Deployment gets the number of the overlay.
func withoutReplicas(present metav1.Object, document map[string]any) (replicas any) {
	replicas, _, _ = unstructured.NestedFieldNoCopy(document, "spec", "replicas")
	unstructured.RemoveNestedField(document, "spec", "replicas")
	if present == nil {
		return replicas
	}
	owned, err := Deployment.owned(present)
	if err != nil {
		return nil
	}
	replicas, _, _ = unstructured.NestedFieldNoCopy(owned, "spec", "replicas")
	return replicas
}

// keepType omits the type of a Service that another client created in advance for the Gateway, unless the
// Gateway or an overlay sets a type.
func (v view) keepType(present metav1.Object, document map[string]any) {
	before := present.GetAnnotations()
	inAdvance := len(ourFields(present.GetManagedFields())) == 0 && before[appliedAnnotation] == ""
	chosen, _, _ := unstructured.NestedString(document, "spec", "type")
	if v.Gateway.Annotations[serviceTypeOverride] != "" || chosen != string(corev1.ServiceTypeLoadBalancer) {
		return
	}
	if _, ok := present.(*corev1.Service); !ok || !inAdvance && before[keptTypeAnnotation] == "" {
		return
	}
	if err := unstructured.SetNestedField(document, "true", "metadata", "annotations", keptTypeAnnotation); err == nil {
		unstructured.RemoveNestedField(document, "spec", "type")
	}
}

// keepSelector keeps the immutable selector of a Deployment that an istiod before 1.24 created.
func keepSelector(present metav1.Object, document map[string]any) {
	deployment, ok := present.(*appsv1.Deployment)
	if !ok || deployment.Spec.Selector == nil {
		return
	}
	if _, former := deployment.Spec.Selector.MatchLabels[formerGatewayLabel]; !former {
		return
	}
	labels := map[string]any{}
	for key, value := range deployment.Spec.Selector.MatchLabels {
		labels[key] = value
		_ = unstructured.SetNestedField(document, value, "spec", "template", "metadata", "labels", key) // cannot fail
	}
	_ = unstructured.SetNestedMap(document, map[string]any{"matchLabels": labels}, "spec", "selector")
}
