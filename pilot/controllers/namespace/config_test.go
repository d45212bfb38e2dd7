package namespace

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pkg/kube"
)

func TestNew_ReportsAllErrors(t *testing.T) {
	client, err := kube.NewClient(&rest.Config{Host: "http://127.0.0.1:1"})
	harness.Must(t, err)
	_, err = New(client, Config{Excluded: []string{"kube-system", "No_Name"}, DiscoverySelectors: []string{"a=b", "a in b", " "}})
	for _, want := range []string{"file is not set", `"No_Name"`, `discovery selector "a in b"`, `discovery selector " " selects all namespaces`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
	if _, err := New(nil, Config{BundleFile: "x"}); err == nil || !strings.Contains(err.Error(), "no client") {
		t.Errorf("New without a client: %v", err)
	}
	if _, err := New(client, Config{BundleFile: "x"}); err != nil {
		t.Error(err)
	}
}

func TestConfigDefaults(t *testing.T) {
	got := Config{}.withDefaults()
	if want := []string{"kube-system", "kube-public", "kube-node-lease", "local-path-storage"}; !slices.Equal(got.Excluded, want) {
		t.Errorf("excluded: %q, want %q", got.Excluded, want)
	}
	if got.Logger != slog.Default() {
		t.Errorf("defaults: %+v", got)
	}
	log := slog.New(slog.DiscardHandler)
	got = Config{Excluded: []string{}, Logger: log}.withDefaults()
	if len(got.Excluded) != 0 || got.Logger != log {
		t.Errorf("configured values became %+v", got)
	}
}
