package gatewaydeploy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// Overlay is what a ConfigMap adds to rendered objects: by key serviceAccount, service and deployment, a
// strategic merge patch as YAML.
type Overlay struct {
	// Source says in problems where it comes from.
	Source string
	Data   map[string]string
}

// overlayOf makes an Overlay of a ConfigMap.
func overlayOf(configMap *corev1.ConfigMap) Overlay {
	return Overlay{Source: "ConfigMap " + configMap.Namespace + "/" + configMap.Name, Data: configMap.Data}
}

// parametersOf is the name of the ConfigMap that a Gateway refers to, "" for none.
func parametersOf(gw *gateway.Gateway) (name string, p *Problem) {
	if gw.Spec.Infrastructure == nil || gw.Spec.Infrastructure.ParametersRef == nil {
		return "", nil
	}
	ref := gw.Spec.Infrastructure.ParametersRef
	if ref.Group != "" || ref.Kind != "ConfigMap" {
		return "", problemf(ReasonInvalidParameters, "spec.infrastructure.parametersRef is a %s of group %q, only ConfigMaps of the core group can be used", ref.Kind, ref.Group)
	}
	return ref.Name, nil
}

// check reports keys that mean nothing here: one that is misspelt would be left out without a word.
func (o Overlay) check() *Problem {
	keys := make([]string, 0, len(Kinds))
	for _, kind := range Kinds {
		keys = append(keys, known[kind].overlay)
	}
	for _, key := range slices.Sorted(maps.Keys(o.Data)) {
		if !slices.Contains(keys, key) {
			return problemf(ReasonInvalidParameters, "%s has the key %q, known are %s", o.Source, key, strings.Join(keys, ", "))
		}
	}
	return nil
}

// onto merges what the overlay has for the kind into a document, and gives the result.
func (o Overlay) onto(kind Kind, document map[string]any) (map[string]any, *Problem) {
	key := known[kind].overlay
	text, ok := o.Data[key]
	if !ok {
		return document, nil
	}
	patch, err := decode([]byte(text))
	if err != nil {
		return nil, problemf(ReasonInvalidParameters, "%s, key %s: %v", o.Source, key, err)
	}
	merged, err := merge(document, patch, kind)
	if err != nil {
		return nil, problemf(ReasonInvalidParameters, "%s, key %s: %v", o.Source, key, err)
	}
	if _, err := kind.typed(merged); err != nil {
		return nil, problemf(ReasonInvalidParameters, "%s, key %s makes no %s: %v", o.Source, key, kind, err)
	}
	if changed := identityChanged(document, merged); changed != "" {
		return nil, problemf(ReasonInvalidParameters, "%s, key %s changes %s, which is not an overlay's to change", o.Source, key, changed)
	}
	return merged, nil
}

// merge is a strategic merge. Apimachinery's panics where two items of a list have keys that cannot be compared, such as
// two containers that are called {a: b}. Whoever may make a ConfigMap could end every control plane by that.
func merge(document, patch map[string]any, kind Kind) (merged map[string]any, err error) {
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("it cannot be merged: %v", why)
		}
	}()
	original := unstructured.Unstructured{Object: document}
	return strategicpatch.StrategicMergeMapPatch(original.DeepCopy().Object, patch, known[kind].empty())
}

// identity are the fields by which an object is found, owned and ended.
var identity = [][]string{
	{"apiVersion"},
	{"kind"},
	{"metadata", "name"},
	{"metadata", "generateName"},
	{"metadata", "namespace"},
	{"metadata", "uid"},
	{"metadata", "resourceVersion"},
	{"metadata", "generation"},
	{"metadata", "creationTimestamp"},
	{"metadata", "deletionTimestamp"},
	{"metadata", "deletionGracePeriodSeconds"},
	{"metadata", "ownerReferences"},
	{"metadata", "finalizers"},
	{"metadata", "managedFields"},
	{"metadata", "selfLink"},
	{"metadata", "labels", ManagedLabel},
	{"metadata", "labels", GatewayLabel},
	{"metadata", "labels", ClassLabel},
	{"status"},
}

// identityChanged names a field of the identity in which two documents differ, "" for none.
func identityChanged(before, after map[string]any) string {
	for _, path := range identity {
		a, _, _ := unstructured.NestedFieldNoCopy(before, path...)
		b, _, err := unstructured.NestedFieldNoCopy(after, path...)
		if err != nil || !equality.Semantic.DeepEqual(a, b) {
			return strings.Join(path, ".")
		}
	}
	return ""
}

// identify gives a rendered document what a template is not to decide: whose it is.
func identify(document map[string]any, gw *gateway.Gateway) error {
	for _, label := range [][2]string{
		{ManagedLabel, ManagedBy}, {GatewayLabel, gw.Name}, {ClassLabel, string(gw.Spec.GatewayClassName)},
	} {
		if err := unstructured.SetNestedField(document, label[1], "metadata", "labels", label[0]); err != nil {
			return fmt.Errorf("metadata.labels: %w", err)
		}
	}
	owner := map[string]any{
		"apiVersion": gateway.GroupVersion.String(), "kind": "Gateway", "name": gw.Name, "uid": string(gw.UID),
	}
	return unstructured.SetNestedSlice(document, []any{owner}, "metadata", "ownerReferences")
}

// ownedBy tells whether an object was made for a Gateway of this name, in whatever incarnation: what a deleted one
// left is taken over before it is collected.
func ownedBy(o metav1.Object, gw *gateway.Gateway) bool {
	if name, ok := o.GetLabels()[GatewayLabel]; ok {
		return name == gw.Name
	}
	for _, owner := range o.GetOwnerReferences() {
		if owner.Kind == "Gateway" {
			return owner.Name == gw.Name
		}
	}
	return true // of an istiod that gave its ServiceAccounts no owner
}
