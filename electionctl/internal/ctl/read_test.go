package ctl

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// warnings records warnings of the API server.
type warnings []string

func (w *warnings) HandleWarningHeader(_ int, _, text string) { *w = append(*w, text) }

// TestConnect_DropsWarnings checks that a user does not see a warning about the version of LeaseCandidates, which the program has chosen.
func TestConnect_DropsWarnings(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("Warning", `299 - "coordination.k8s.io/v1beta1 LeaseCandidate is deprecated in v1.36+, unavailable in v1.39+"`)
		w.Header().Add("Warning", `299 - "other"`)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion":"v1","kind":"List"}`)
	}))
	defer server.Close()
	var got warnings
	p := &Program{wrap: func(config *rest.Config) *rest.Config {
		config.WarningHandler = &got
		return config
	}}
	p.Command()
	*p.flags.APIServer = server.URL
	c, err := p.connect()
	harness.Must(t, err)
	candidates := schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1beta1", Resource: "leasecandidates"}
	_, err = c.meta.Resource(candidates).List(t.Context(), metav1.ListOptions{})
	harness.Must(t, err)
	_, err = c.kube.CoreV1().Pods("n").List(t.Context(), metav1.ListOptions{})
	harness.Must(t, err)
	if !slices.Equal(got, []string{"other", "other"}) {
		t.Errorf("%q", got)
	}
}
