package gatewaydeploy

import (
	"encoding/json"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	kjson "sigs.k8s.io/json"
)

// Kind is one of the three that are made for a Gateway.
type Kind string

// The kinds, by their names in the API.
const (
	ServiceAccount Kind = "ServiceAccount"
	Service        Kind = "Service"
	Deployment     Kind = "Deployment"
)

// Kinds are all of them, in the order in which they are written: Pods need their account.
var Kinds = []Kind{ServiceAccount, Service, Deployment}

// facts are what is to know of a kind.
type facts struct {
	gvk      schema.GroupVersionKind
	resource string
	// overlay is its key in a ConfigMap of parameters.
	overlay string
	// empty makes an object of the kind.
	empty func() metav1.Object
	// owned makes an object of those fields of another one that an apply of ours owns.
	owned func(metav1.Object) (metav1.Object, error)
}

var known = map[Kind]facts{
	ServiceAccount: {
		gvk: corev1.SchemeGroupVersion.WithKind("ServiceAccount"), resource: "serviceaccounts", overlay: "serviceAccount",
		empty: func() metav1.Object { return &corev1.ServiceAccount{} },
		owned: extract[corev1.ServiceAccount](func(o *corev1.ServiceAccount) (any, error) {
			return corev1ac.ExtractServiceAccount(o, ControllerName)
		}),
	},
	Service: {
		gvk: corev1.SchemeGroupVersion.WithKind("Service"), resource: "services", overlay: "service",
		empty: func() metav1.Object { return &corev1.Service{} },
		owned: extract[corev1.Service](func(o *corev1.Service) (any, error) {
			return corev1ac.ExtractService(o, ControllerName)
		}),
	},
	Deployment: {
		gvk: appsv1.SchemeGroupVersion.WithKind("Deployment"), resource: "deployments", overlay: "deployment",
		empty: func() metav1.Object { return &appsv1.Deployment{} },
		owned: extract[appsv1.Deployment](func(o *appsv1.Deployment) (any, error) {
			return appsv1ac.ExtractDeployment(o, ControllerName)
		}),
	},
}

// Resource is what the API calls the objects of a kind.
func (k Kind) Resource() schema.GroupVersionResource {
	return known[k].gvk.GroupVersion().WithResource(known[k].resource)
}

// extract turns client-go's apply configurations back into objects, which can be compared.
func extract[T any, P interface {
	*T
	metav1.Object
}](of func(P) (any, error),
) func(metav1.Object) (metav1.Object, error) {
	return func(o metav1.Object) (metav1.Object, error) {
		typed, ok := o.(P)
		if !ok {
			return nil, fmt.Errorf("a %T is no %T", o, typed)
		}
		fields, err := of(typed)
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

// typed reads a document as an object of the kind. A field that the kind does not have is an error.
func (k Kind) typed(document map[string]any) (metav1.Object, error) {
	content, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	to := known[k].empty()
	unknown, err := kjson.UnmarshalStrict(content, to) // which names the field, and tells A from a
	return to, errors.Join(append(unknown, err)...)
}
