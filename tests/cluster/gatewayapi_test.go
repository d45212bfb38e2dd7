package cluster

import (
	"path/filepath"
	"slices"
	"testing"
)

// A file can contain several definitions.
func TestReadDefinitions(t *testing.T) {
	found, err := readDefinitions(filepath.Join("..", "upgrade", "testdata", "definitions"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, definition := range found {
		names = append(names, definition.GetName())
	}
	if want := []string{"prometheusrules.monitoring.coreos.com", "servicemonitors.monitoring.coreos.com"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}
