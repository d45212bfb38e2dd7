package gatewaydeploy

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// overlay contains strategic merge patches for the objects of a Gateway, as YAML, with the keys
// serviceAccount, service, deployment, horizontalPodAutoscaler and podDisruptionBudget.
type overlay struct {
	// Source describes the origin in problems.
	Source string
	// Data has the patch of each key.
	Data map[string]string

	patches map[Kind]patch
	fields  *fields // that may change; nil for all
}

// patch is the parsed patch of one key. Its content is not modified.
type patch struct {
	content map[string]any
	problem *Problem
}

// overlayOf returns the parsed overlay of a ConfigMap.
func overlayOf(configMap *corev1.ConfigMap) overlay {
	o := overlay{Source: "ConfigMap " + configMap.Namespace + "/" + configMap.Name, Data: configMap.Data, patches: map[Kind]patch{}}
	for _, kind := range patched {
		if o.has(kind) {
			content, problem := o.parse(kind)
			o.patches[kind] = patch{content, problem}
		}
	}
	return o
}

// parametersOf returns the name of the ConfigMap of parametersRef, or "".
func parametersOf(gw *gateway.Gateway) (name string, p *Problem) {
	if gw.Spec.Infrastructure == nil || gw.Spec.Infrastructure.ParametersRef == nil {
		return "", nil
	}
	ref := gw.Spec.Infrastructure.ParametersRef
	if ref.Group != "" || ref.Kind != "ConfigMap" {
		return "", problemf(ReasonInvalidParameters, "spec.infrastructure.parametersRef refers to a %s of group %q; only ConfigMaps of the core group are supported", ref.Kind, ref.Group)
	}
	return ref.Name, nil
}

const (
	// maxOverlay bounds the text of one key.
	maxOverlay = 1 << 16
	// maxElements bounds the elements of all lists of one key, because the time of a merge is quadratic. All namespaces share
	// the time of the workers.
	maxElements = 256
)

// check returns a problem for unknown keys, which may be misspelled. The other keys are applied.
func (o overlay) check() *Problem {
	keys := make([]string, 0, len(patched))
	for _, kind := range patched {
		keys = append(keys, kind.overlay())
	}
	var unknown []string
	for _, key := range slices.Sorted(maps.Keys(o.Data)) {
		if !slices.Contains(keys, key) {
			unknown = append(unknown, strconv.Quote(key))
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	const listed = 3
	return problemf(ReasonUnknownParameter, "%s: ignoring %d unknown keys, such as %s; use %s",
		o.Source, len(unknown), strings.Join(unknown[:min(len(unknown), listed)], ", "), strings.Join(keys, ", "))
}

// has reports whether the overlay has the key of a kind.
func (o overlay) has(kind Kind) bool {
	_, ok := o.Data[kind.overlay()]
	return ok && slices.Contains(patched, kind)
}

// parse returns the patch of a kind, or the problem of its text.
func (o overlay) parse(kind Kind) (map[string]any, *Problem) {
	key := kind.overlay()
	if len(o.Data[key]) > maxOverlay {
		return nil, problemf(ReasonInvalidParameters, "%s, key %s: at most %d bytes are allowed", o.Source, key, maxOverlay)
	}
	content, err := unaliased(o.Data[key])
	if err != nil {
		return nil, problemf(ReasonInvalidParameters, "%s, key %s: %v", o.Source, key, err)
	}
	if number := longNumber(content); number != "" {
		return nil, problemf(ReasonInvalidParameters, "%s, key %s: the number %q has a long exponent", o.Source, key, number)
	}
	if n := elements(content); n > maxElements {
		return nil, problemf(ReasonInvalidParameters, "%s, key %s: %d list elements; at most %d are allowed", o.Source, key, n, maxElements)
	}
	return content, nil
}

// unaliased decodes a YAML document. It rejects a document whose aliases multiply its content: 64 KiB of text could otherwise
// become 300 MB.
func unaliased(text string) (map[string]any, error) {
	const limit = 2 * maxOverlay
	var document yaml.Node // has aliases as references
	documents := yaml.NewDecoder(strings.NewReader(text))
	if err := documents.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := documents.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("the text has more than one document")
	}
	if remaining(&document, limit) < 0 {
		return nil, fmt.Errorf("aliases expand the document to more than %d bytes", limit)
	}
	return decode([]byte(text))
}

// remaining returns the limit less the size of a node, where each alias has the size of its content. It returns a negative
// number if the node is larger.
func remaining(node *yaml.Node, limit int) int {
	limit -= 1 + len(node.Value)
	if node.Alias != nil {
		limit = remaining(node.Alias, limit)
	}
	for _, child := range node.Content {
		if limit < 0 {
			break
		}
		limit = remaining(child, limit)
	}
	return limit
}

// exponent matches a quantity whose exponent is out of the range of every resource.
var exponent = regexp.MustCompile(`^[+-]?[0-9.]+[eE][+-]?[0-9]{3,}$`)

// longNumber returns the first text outside of metadata that is a number with a long exponent, or "". To parse a quantity such as
// 1e-20000000 takes seconds.
func longNumber(value any) string {
	switch value := value.(type) {
	case string:
		if exponent.MatchString(value) {
			return value
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if found := longNumber(value[name]); found != "" && name != "metadata" {
				return found
			}
		}
	case []any:
		for _, element := range value {
			if found := longNumber(element); found != "" {
				return found
			}
		}
	}
	return ""
}

// elements returns the number of elements of all lists in a value.
func elements(value any) (n int) {
	switch value := value.(type) {
	case map[string]any:
		for _, child := range value {
			n += elements(child)
		}
	case []any:
		n = len(value)
		for _, child := range value {
			n += elements(child)
		}
	}
	return n
}

// onto returns a document merged with the overlay of its kind.
func (o overlay) onto(kind Kind, document map[string]any) (map[string]any, *Problem) {
	key := kind.overlay()
	patch, requested := o.patches[kind]
	if !requested || patch.problem != nil {
		return document, patch.problem
	}
	if o.fields != nil {
		if path := o.fields.rejected("", map[string]any{key: patch.content}, map[string]any{key: document}); path != "" {
			return nil, problemf(ReasonInvalidParameters, "%s: field %s must not be changed; an administrator can allow it with --gateway-overlay-fields", o.Source, path)
		}
	}
	merged, err := merge(document, patch.content, kind)
	if err != nil {
		return nil, problemf(ReasonInvalidParameters, "%s, key %s: %v", o.Source, key, err)
	}
	if _, err := kind.typed(merged); err != nil {
		return nil, problemf(ReasonInvalidParameters, "%s, key %s: result is not a valid %s: %v", o.Source, key, kind, err)
	}
	if changed := identityChanged(document, merged); changed != "" {
		return nil, problemf(ReasonInvalidParameters, "%s, key %s: an overlay must not change %s", o.Source, key, changed)
	}
	return merged, nil
}

// merge performs a strategic merge and converts panics to errors. Apimachinery panics if merge keys are not
// comparable, such as containers with the name {a: b}. Any author of a ConfigMap could crash every
// control plane with that.
func merge(document, patch map[string]any, kind Kind) (merged map[string]any, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("cannot merge: %v", reason)
		}
	}()
	// The merge modifies both arguments, and the result has parts of both.
	return strategicpatch.StrategicMergeMapPatch(runtime.DeepCopyJSON(document), runtime.DeepCopyJSON(patch), kind.empty())
}

// identityFields lists the fields of the metadata that an overlay must not change.
var identityFields = []string{
	"name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
	"deletionGracePeriodSeconds", "ownerReferences", "finalizers", "managedFields", "selfLink",
}

// identity returns the paths that an overlay must not change.
func identity() [][]string {
	paths := [][]string{{"apiVersion"}, {"kind"}, {"status"}}
	for _, name := range identityFields {
		paths = append(paths, []string{"metadata", name})
	}
	for _, label := range []string{ManagedLabel, RevisionLabel, gateway.GatewayNameLabelKey, gateway.GatewayClassNameLabelKey} {
		paths = append(paths, []string{"metadata", "labels", label})
	}
	return paths
}

// identityChanged returns the first identity field in which two documents differ, or "".
func identityChanged(before, after map[string]any) string {
	for _, path := range identity() {
		a, _, _ := unstructured.NestedFieldNoCopy(before, path...)
		b, _, err := unstructured.NestedFieldNoCopy(after, path...)
		if err != nil || !equality.Semantic.DeepEqual(a, b) {
			return strings.Join(path, ".")
		}
	}
	return ""
}

// identify sets the labels and the owner reference of a rendered document.
func (v view) identify(document map[string]any) error {
	gw := v.Gateway
	for _, label := range [][2]string{
		{ManagedLabel, ManagedBy}, {RevisionLabel, v.Revision}, {gateway.GatewayNameLabelKey, LabelValue(gw.Name)}, {gateway.GatewayClassNameLabelKey, LabelValue(gw.Spec.GatewayClassName)},
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

// OwnerName returns the name of the Gateway that owns an object, or "".
func OwnerName(o metav1.Object) string {
	for _, owner := range o.GetOwnerReferences() {
		if owner.Kind == "Gateway" {
			return owner.Name
		}
	}
	return ""
}

// ownedBy reports whether an object was created for a Gateway of this name. Objects of a deleted Gateway of
// the same name count, so that they are adopted before they are garbage-collected. The label has a long name
// only in a short form, which can be the name of another Gateway.
func ownedBy(o metav1.Object, gw *gateway.Gateway) bool {
	if owner := OwnerName(o); owner != "" {
		return owner == gw.Name
	}
	name, labelled := o.GetLabels()[gateway.GatewayNameLabelKey] // some versions of istiod set no owner on ServiceAccounts
	return !labelled || name == LabelValue(gw.Name)
}
