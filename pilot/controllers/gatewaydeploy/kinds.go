package gatewaydeploy

import (
	"encoding/json"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	autoscalingv2ac "k8s.io/client-go/applyconfigurations/autoscaling/v2"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	policyv1ac "k8s.io/client-go/applyconfigurations/policy/v1"
	kjson "sigs.k8s.io/json"
)

// Kind is a kind of object that is created for a Gateway.
type Kind string

// The kinds.
const (
	ServiceAccount Kind = "ServiceAccount"
	Service        Kind = "Service"
	Deployment     Kind = "Deployment"
	Autoscaler     Kind = "HorizontalPodAutoscaler"
	Budget         Kind = "PodDisruptionBudget"
)

// Kinds lists all kinds in the order of writing: Pods need their ServiceAccount.
var Kinds = []Kind{ServiceAccount, Service, Deployment, Autoscaler, Budget}

// rendered lists the kinds of the template. The other kinds exist only with an overlay.
var rendered = Kinds[:3]

// facts describes a kind.
type facts struct {
	gvk      schema.GroupVersionKind
	resource string
	// overlay is the key of the kind in an overlay.
	overlay string
	// empty returns a new object.
	empty func() metav1.Object
	// owned returns a copy with only the fields that an apply of this controller owns.
	owned func(metav1.Object) (metav1.Object, error)
}

var known = map[Kind]facts{
	ServiceAccount: {
		gvk: corev1.SchemeGroupVersion.WithKind("ServiceAccount"), resource: "serviceaccounts", overlay: "serviceAccount",
		empty: func() metav1.Object { return &corev1.ServiceAccount{} },
		owned: extract(corev1ac.ExtractServiceAccount),
	},
	Service: {
		gvk: corev1.SchemeGroupVersion.WithKind("Service"), resource: "services", overlay: "service",
		empty: func() metav1.Object { return &corev1.Service{} },
		owned: extract(corev1ac.ExtractService),
	},
	Deployment: {
		gvk: appsv1.SchemeGroupVersion.WithKind("Deployment"), resource: "deployments", overlay: "deployment",
		empty: func() metav1.Object { return &appsv1.Deployment{} },
		owned: extract(appsv1ac.ExtractDeployment),
	},
	Autoscaler: {
		gvk: autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"), resource: "horizontalpodautoscalers", overlay: "horizontalPodAutoscaler",
		empty: func() metav1.Object { return &autoscalingv2.HorizontalPodAutoscaler{} },
		owned: extract(autoscalingv2ac.ExtractHorizontalPodAutoscaler),
	},
	Budget: {
		gvk: policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), resource: "poddisruptionbudgets", overlay: "podDisruptionBudget",
		empty: func() metav1.Object { return &policyv1.PodDisruptionBudget{} },
		owned: extract(policyv1ac.ExtractPodDisruptionBudget),
	},
}

// Resource returns the API resource of a kind.
func (k Kind) Resource() schema.GroupVersionResource {
	return known[k].gvk.GroupVersion().WithResource(known[k].resource)
}

// extract converts client-go's apply configurations into objects, which can be compared.
func extract[T, A any, P interface {
	*T
	metav1.Object
}](of func(o P, manager string) (A, error),
) func(metav1.Object) (metav1.Object, error) {
	return func(o metav1.Object) (metav1.Object, error) {
		typed, ok := o.(P)
		if !ok {
			return nil, fmt.Errorf("unexpected type %T, want %T", o, typed)
		}
		fields, err := of(typed, ControllerName)
		if err != nil {
			return nil, err
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(fields)
		if err != nil {
			return nil, err
		}
		var to P = new(T)
		return to, runtime.DefaultUnstructuredConverter.FromUnstructured(content, to)
	}
}

// typed decodes a document. It returns an error for unknown fields.
func (k Kind) typed(document map[string]any) (metav1.Object, error) {
	content, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	to := known[k].empty()
	unknown, err := kjson.UnmarshalStrict(content, to) // reports the field, and is case-sensitive
	return to, errors.Join(append(unknown, err)...)
}
