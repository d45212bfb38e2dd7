package gatewaydeploy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// appliedAnnotation holds a digest of the document that was written last. It reveals removed fields, which
// are otherwise indistinguishable from defaults of the API server that this controller owns.
const appliedAnnotation = "incumbent.dev/applied"

// seal writes the digest of a document into its annotations.
func seal(document map[string]any) error {
	unstructured.RemoveNestedField(document, "metadata", "annotations", appliedAnnotation)
	content, err := json.Marshal(document)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	return unstructured.SetNestedField(document, hex.EncodeToString(sum[:16]), "metadata", "annotations", appliedAnnotation)
}

// upToDate reports whether an apply of the document would not change an object: the same document was
// written last, and this controller still owns each field with its value.
func (k Kind) upToDate(present metav1.Object, document map[string]any) (bool, error) {
	have, err := k.owned(present)
	if err != nil {
		return false, fmt.Errorf("read managedFields of %s %s/%s: %w", k, present.GetNamespace(), present.GetName(), err)
	}
	typed, err := k.typed(document)
	if err != nil {
		return false, err
	}
	// Quantities, for example, have several notations. The other two values are canonical.
	canonical, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return false, err
	}
	return holds(have, document, canonical), nil
}

// holds reports whether a value contains the wanted value. form is the wanted value in canonical form,
// which may have additional fields.
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
			// Others may add items to lists of objects, and their order has no meaning.
			if !slices.ContainsFunc(items, func(item any) bool { return holds(item, value, forms[i]) }) {
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

func isMap(value any) bool {
	_, ok := value.(map[string]any)
	return ok
}
