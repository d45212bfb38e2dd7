package cluster

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A definition that the API server has not looked at yet is waited for, and is no failure.
func TestADefinitionWithoutConditionsIsNotEstablished(t *testing.T) {
	for _, c := range []struct {
		status any
		want   bool
	}{
		{nil, false},
		{map[string]any{}, false},
		{map[string]any{"conditions": nil}, false},
		{map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "False"}}}, false},
		{map[string]any{"conditions": []any{map[string]any{"type": "NamesAccepted", "status": "True"}, map[string]any{"type": "Established", "status": "True"}}}, true},
	} {
		if got := established(&unstructured.Unstructured{Object: map[string]any{"status": c.status}}); got != c.want {
			t.Errorf("%v: %v", c.status, got)
		}
	}
}
