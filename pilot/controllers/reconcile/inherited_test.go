package reconcile

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/tagging"
)

func TestInherited(t *testing.T) {
	for name, test := range map[string]struct{ own, namespace, want map[string]string }{
		"neither":       {nil, nil, nil},
		"its own":       {map[string]string{tagging.Label: "a"}, map[string]string{tagging.Label: "b"}, map[string]string{tagging.Label: "a"}},
		"its own empty": {map[string]string{tagging.Label: ""}, map[string]string{tagging.Label: "b"}, map[string]string{tagging.Label: ""}},
		"its namespace's": {
			map[string]string{"x": "y"}, map[string]string{tagging.Label: "b", "z": ""}, map[string]string{"x": "y", tagging.Label: "b"},
		},
		"without labels": {nil, map[string]string{tagging.Label: "b"}, map[string]string{tagging.Label: "b"}},
	} {
		before := maps.Clone(test.own)
		got := Inherited(metav1.ObjectMeta{Name: "a", Labels: test.own}, test.namespace)
		if !maps.Equal(got.Labels, test.want) || got.Name != "a" {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
		if !maps.Equal(test.own, before) {
			t.Errorf("%s: the object was changed", name)
		}
	}
}
