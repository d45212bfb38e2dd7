package reconcile

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestInherited(t *testing.T) {
	for name, test := range map[string]struct{ own, namespace, want map[string]string }{
		"neither":       {nil, nil, nil},
		"its own":       {map[string]string{revisionLabel: "a"}, map[string]string{revisionLabel: "b"}, map[string]string{revisionLabel: "a"}},
		"its own empty": {map[string]string{revisionLabel: ""}, map[string]string{revisionLabel: "b"}, map[string]string{revisionLabel: ""}},
		"its namespace's": {
			map[string]string{"x": "y"}, map[string]string{revisionLabel: "b", "z": ""}, map[string]string{"x": "y", revisionLabel: "b"},
		},
		"without labels": {nil, map[string]string{revisionLabel: "b"}, map[string]string{revisionLabel: "b"}},
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
