package gatewaydeploy

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Additional fields and items of others do not matter. The order matters only in lists of scalars.
func TestHolds(t *testing.T) {
	type m = map[string]any
	type l = []any
	for name, c := range map[string]struct {
		have, want, form any
		holds            bool
	}{
		"the same text":          {"a", "a", "a", true},
		"other text":             {"a", "b", "b", false},
		"other notation":         {"100m", "0.1", "100m", true},
		"nil":                    {"a", nil, nil, true},
		"more fields":            {m{"a": "1", "b": "2"}, m{"a": "1"}, m{"a": "1"}, true},
		"missing field":          {m{"a": "1"}, m{"a": "1", "b": "2"}, m{"a": "1", "b": "2"}, false},
		"not an object":          {"a", m{"a": "1"}, m{"a": "1"}, false},
		"nil field":              {m{}, m{"a": nil}, m{}, true},
		"no items":               {l{"a"}, l{}, l{}, true},
		"no items, other form":   {l{"a"}, l{}, l{"a"}, true},
		"the same texts":         {l{"a", "b"}, l{"a", "b"}, l{"a", "b"}, true},
		"texts in another order": {l{"b", "a"}, l{"a", "b"}, l{"a", "b"}, false},
		"more texts":             {l{"a", "b"}, l{"a"}, l{"a"}, false},
		"missing text":           {l{"a"}, l{"a", "b"}, l{"a", "b"}, false},
		"more items":             {l{m{"n": "a"}, m{"n": "b"}}, l{m{"n": "b"}}, l{m{"n": "b"}}, true},
		"items in another order": {l{m{"n": "b"}, m{"n": "a"}}, l{m{"n": "a"}, m{"n": "b"}}, l{m{"n": "a"}, m{"n": "b"}}, true},
		"missing item":           {l{m{"n": "a"}}, l{m{"n": "a"}, m{"n": "b"}}, l{m{"n": "a"}, m{"n": "b"}}, false},
		"item with other field":  {l{m{"n": "a", "v": "1"}}, l{m{"n": "a", "v": "2"}}, l{m{"n": "a", "v": "2"}}, false},
		"form of other length":   {l{m{"n": "a"}}, l{m{"n": "a"}}, l{}, false},
	} {
		if got := holds(c.have, c.want, c.form); got != c.holds {
			t.Errorf("%s: holds is %v", name, got)
		}
	}
}

func TestSeal(t *testing.T) {
	digest := func(document map[string]any) string {
		o := unstructured.Unstructured{Object: sealed(document)}
		return o.GetAnnotations()[appliedAnnotation]
	}
	document := map[string]any{"metadata": map[string]any{"annotations": map[string]any{"a": "b"}}, "spec": map[string]any{"a": "b"}}
	first := digest(document)
	if again := digest(document); len(first) != 32 || again != first {
		t.Errorf("the digest is %q, then %q", first, again)
	}
	if other := digest(edited(document, "c", "spec", "a")); other == first {
		t.Error("the digest of another document is the same")
	}
	if err := seal(map[string]any{"a": func() {}}); err == nil {
		t.Error("seal returned no error")
	}
}
