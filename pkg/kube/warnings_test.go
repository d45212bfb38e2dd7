package kube

import (
	"context"
	"slices"
	"testing"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// warnings records warnings.
type warnings []string

func (w *warnings) HandleWarningHeader(_ int, _, text string) { *w = append(*w, text) }

func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	*w = append(*w, text)
}

func TestNewClient_DropsWarnings(t *testing.T) {
	for name, set := range map[string]func(*rest.Config, *warnings){
		"without context": func(c *rest.Config, w *warnings) { c.WarningHandler = w },
		"with context":    func(c *rest.Config, w *warnings) { c.WarningHandlerWithContext = w },
	} {
		var got warnings
		config := &rest.Config{Host: "http://unused"}
		set(config, &got)
		c, err := NewClient(config)
		harness.Must(t, err)
		if c, err = Derive(c); err != nil {
			t.Fatal(err)
		}
		handler := c.RESTConfig().WarningHandlerWithContext
		handler.HandleWarningHeaderWithContext(t.Context(), 299, "", "coordination.k8s.io/v1beta1 LeaseCandidate is deprecated in v1.36+")
		handler.HandleWarningHeaderWithContext(t.Context(), 299, "", "other")
		if !slices.Equal(got, []string{"other"}) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
