package cluster

import (
	"path/filepath"
	"slices"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// A file can contain several definitions.
func TestReadDefinitions(t *testing.T) {
	found, err := readDefinitions(filepath.Join("..", "upgrade", "testdata", "definitions"))
	harness.Must(t, err)
	var names []string
	for _, definition := range found {
		names = append(names, definition.GetName())
	}
	if want := []string{"prometheusrules.monitoring.coreos.com", "servicemonitors.monitoring.coreos.com"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}
