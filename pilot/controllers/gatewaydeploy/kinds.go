package gatewaydeploy

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
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
	Policy         Kind = "NetworkPolicy"
)

// Kinds lists all kinds in the order of writing: Pods need their ServiceAccount.
var Kinds = []Kind{ServiceAccount, Service, Deployment, Autoscaler, Budget, Policy}

var (
	// rendered lists the kinds of the template. The other kinds exist only on request.
	rendered = Kinds[:3]
	// patched lists the kinds that overlays change. A policy of a user could allow traffic that the policies of an administrator do not.
	patched = Kinds[:5]
	// optionalKinds lists the kinds that Config.Objects can request.
	optionalKinds = []Kind{Budget, Policy}
)

var versions = map[Kind]schema.GroupVersion{
	ServiceAccount: corev1.SchemeGroupVersion,
	Service:        corev1.SchemeGroupVersion,
	Deployment:     appsv1.SchemeGroupVersion,
	Autoscaler:     autoscalingv2.SchemeGroupVersion,
	Budget:         policyv1.SchemeGroupVersion,
	Policy:         networkingv1.SchemeGroupVersion,
}

func (k Kind) gvk() schema.GroupVersionKind { return versions[k].WithKind(string(k)) }

// Resource returns the API resource of a kind.
func (k Kind) Resource() schema.GroupVersionResource {
	resource, _ := apimeta.UnsafeGuessKindToResource(k.gvk())
	return resource
}

// overlay returns the key of the kind in an overlay and in Config.Objects, for example "serviceAccount".
func (k Kind) overlay() string { return strings.ToLower(string(k[:1])) + string(k[1:]) }

// ParseKinds returns the kinds of Config.Objects, or an error for a name that it cannot request.
func ParseKinds(names []string) (kinds []Kind, err error) {
	for _, name := range names {
		i := slices.IndexFunc(optionalKinds, func(k Kind) bool { return k.overlay() == name })
		if i < 0 {
			return nil, fmt.Errorf("%q is not podDisruptionBudget or networkPolicy", name)
		}
		kinds = append(kinds, optionalKinds[i])
	}
	return kinds, nil
}

// empty returns a new object.
func (k Kind) empty() metav1.Object {
	object, _ := scheme.Scheme.New(k.gvk()) // all kinds are registered
	o, _ := object.(metav1.Object)
	return o
}

// typed decodes a document. It returns an error for unknown fields.
func (k Kind) typed(document map[string]any) (metav1.Object, error) {
	content, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	to := k.empty()
	unknown, err := kjson.UnmarshalStrict(content, to) // reports the field, and is case-sensitive
	return to, errors.Join(append(unknown, err)...)
}

// schemas has the schemas of all kinds.
var schemas = sync.OnceValue(func() managedfields.TypeConverter { return applyconfigurations.NewTypeConverter(scheme.Scheme) })

// owned returns the identity of an object, and the fields that this controller owns. Fields of its create count,
// because a claim converts them into fields of an apply.
func (k Kind) owned(o metav1.Object) (map[string]any, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	object := unstructured.Unstructured{Object: content}
	object.SetGroupVersionKind(k.gvk())
	all, err := schemas().ObjectToTyped(&object)
	if err != nil {
		return nil, err
	}
	paths := fieldpath.NewSet()
	for _, entry := range ourFields(o.GetManagedFields()) {
		ours := fieldpath.NewSet()
		if err := ours.FromJSON(entry.FieldsV1.GetRawReader()); err != nil {
			return nil, err
		}
		paths = paths.Union(ours)
	}
	fields, _ := all.ExtractItems(paths.Leaves()).AsValue().Unstructured().(map[string]any) // nil if there are none
	owned := unstructured.Unstructured{Object: fields}
	owned.SetGroupVersionKind(k.gvk())
	owned.SetNamespace(o.GetNamespace())
	owned.SetName(o.GetName())
	return owned.Object, nil
}

// ourFields returns the entries of this controller.
func ourFields(all []metav1.ManagedFieldsEntry) (ours []metav1.ManagedFieldsEntry) {
	for _, entry := range all {
		if entry.Manager == reconcile.GatewayController && entry.Subresource == "" {
			ours = append(ours, entry)
		}
	}
	return ours
}

// created reports whether an object still has the managedFields entry of our create. An apply would share
// its fields with that entry and could not remove them.
func created(o metav1.Object) bool {
	return slices.ContainsFunc(ourFields(o.GetManagedFields()), func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Operation == metav1.ManagedFieldsOperationUpdate
	})
}
