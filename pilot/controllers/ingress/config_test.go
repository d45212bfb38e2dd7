package ingress

import (
	"log/slog"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pkg/kube"
)

func TestNew_ReportsAllErrors(t *testing.T) {
	client, err := kube.NewClient(&rest.Config{Host: "http://127.0.0.1:1"})
	harness.Must(t, err)
	good := Config{Mode: "Strict", Class: "istio", Service: key{Namespace: "istio-system", Name: "istio-ingressgateway"}}
	_, err = New(client, Config{Mode: "sometimes", Service: key{Namespace: "No_Space", Name: "9"}})
	for _, want := range []string{"ingress controller: ", `unknown mode "sometimes"`, "class is not set", `"No_Space"`, `service "9"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
	if _, err := New(nil, good); err == nil || !strings.Contains(err.Error(), "ingress controller: ") || !strings.Contains(err.Error(), "no client") {
		t.Errorf("New without a client: %v", err)
	}
	c, err := New(client, good)
	harness.Must(t, err)
	if c.config.Mode != Strict || c.config.Logger != slog.Default() {
		t.Errorf("config is %+v", c.config)
	}
}

func TestParseMode(t *testing.T) {
	for text, want := range map[string]Mode{"off": Off, "Strict": Strict, "DEFAULT": Default, "": "", "none": ""} {
		if got, err := ParseMode(text); got != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v", text, got, err)
		}
	}
}
