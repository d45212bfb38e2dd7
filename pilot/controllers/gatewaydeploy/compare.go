package gatewaydeploy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// appliedAnnotation is a digest of what was wanted when an object was written last. Fields that are not wanted any more
// cannot be told from those that the API server filled in, which are ours too; that something else is wanted can.
const appliedAnnotation = "incumbent.dev/applied"

// seal notes on a document what it says.
func seal(document map[string]any) error {
	unstructured.RemoveNestedField(document, "metadata", "annotations", appliedAnnotation)
	content, err := json.Marshal(document)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	return unstructured.SetNestedField(document, hex.EncodeToString(sum[:16]), "metadata", "annotations", appliedAnnotation)
}

// asWanted tells whether an object is as an apply of the document would leave it: the same was wanted when it
// was written last, and each field of it is still ours and has its value. A field that somebody else has changed is not ours
// any more.
func (k Kind) asWanted(present metav1.Object, document map[string]any) (bool, error) {
	owned, err := known[k].owned(asApplied(present))
	if err != nil {
		return false, fmt.Errorf("reading who owns the fields of %s %s/%s: %w", k, present.GetNamespace(), present.GetName(), err)
	}
	have, err := runtime.DefaultUnstructuredConverter.ToUnstructured(owned)
	if err != nil {
		return false, err
	}
	typed, err := k.typed(document)
	if err != nil {
		return false, err
	}
	// What is written in several ways, such as quantities, is so in one way only in the other two.
	canonical, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return false, err
	}
	return holds(have, document, canonical), nil
}

// holds tells whether a value has all that is wanted of it; form is what is wanted in its canonical form, with fields
// beside that nobody asked for.
func holds(have, want, form any) bool {
	switch want := want.(type) {
	case map[string]any:
		fields, _ := have.(map[string]any)
		forms, _ := form.(map[string]any)
		for name, value := range want {
			if !holds(fields[name], value, forms[name]) {
				return false
			}
		}
		return true
	case []any:
		items, _ := have.([]any)
		forms, _ := form.([]any)
		if len(forms) != len(want) {
			return len(want) == 0
		}
		for i, value := range want {
			// In most lists others may add items, and the order says nothing.
			if !anyHolds(items, value, forms[i]) {
				return false
			}
		}
		return len(want) == 0 || isMap(want[0]) || reflect.DeepEqual(items, forms)
	case nil:
		return true
	default:
		return reflect.DeepEqual(have, form)
	}
}

func anyHolds(items []any, want, form any) bool {
	for _, item := range items {
		if holds(item, want, form) {
			return true
		}
	}
	return false
}

func isMap(value any) bool {
	_, is := value.(map[string]any)
	return is
}
