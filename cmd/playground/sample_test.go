package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// What of a Gateway's status is not so yet is told, whatever else is.
func TestWhatAGatewayLacks(t *testing.T) {
	whole := func() (*gateway.Gateway, *gateway.HTTPRoute) {
		g := &gateway.Gateway{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
		g.Status.Addresses = []gateway.GatewayStatusAddress{{Value: "127.0.0.9"}}
		g.Status.Conditions = []metav1.Condition{{Type: "Accepted", Status: "True"}, {Type: "Programmed", Status: "True", ObservedGeneration: 3}}
		r := &gateway.HTTPRoute{}
		r.Status.Parents = []gateway.RouteParentStatus{
			{Conditions: []metav1.Condition{{Type: "Accepted", Status: "False"}}}, {Conditions: []metav1.Condition{{Type: "Accepted", Status: "True"}}},
		}
		return g, r
	}
	if lacks := unserved(whole()); lacks != "" {
		t.Errorf("what is whole: %s", lacks)
	}
	for name, test := range map[string]struct {
		change func(*gateway.Gateway, *gateway.HTTPRoute)
		want   string
	}{
		"no address":           {func(g *gateway.Gateway, _ *gateway.HTTPRoute) { g.Status.Addresses = nil }, "not programmed"},
		"no condition":         {func(g *gateway.Gateway, _ *gateway.HTTPRoute) { g.Status.Conditions = nil }, "not programmed"},
		"false":                {func(g *gateway.Gateway, _ *gateway.HTTPRoute) { g.Status.Conditions[1].Status = "False" }, "not programmed"},
		"of what was before":   {func(g *gateway.Gateway, _ *gateway.HTTPRoute) { g.Generation = 4 }, "not programmed"},
		"a route of nobody":    {func(_ *gateway.Gateway, r *gateway.HTTPRoute) { r.Status.Parents = nil }, "route is not accepted"},
		"a route not accepted": {func(_ *gateway.Gateway, r *gateway.HTTPRoute) { r.Status.Parents = r.Status.Parents[:1] }, "route is not accepted"},
	} {
		g, r := whole()
		test.change(g, r)
		if lacks := unserved(g, r); !strings.Contains(lacks, test.want) {
			t.Errorf("%s: %q", name, lacks)
		}
	}
}

func TestTableOfTheSample(t *testing.T) {
	for _, test := range []struct {
		now  sampled
		want string
	}{
		{sampled{}, ""},
		{sampled{missing: "it is not programmed yet"}, "SAMPLE            ADDRESS   ANSWERED BY|Gateway shop/web            it is not programmed yet|Ingress shop/web  none yet"},
		{
			sampled{gateway: "127.0.0.9:8080", pod: "web-1", ingress: "127.0.0.8"},
			"SAMPLE            ADDRESS                ANSWERED BY|Gateway shop/web  http://127.0.0.9:8080  web-1|Ingress shop/web  127.0.0.8",
		},
	} {
		if got := strings.Join(columns(sampleRows(test.now)), "|"); got != test.want {
			t.Errorf("of %+v it shows\n%s\nwant\n%s", test.now, got, test.want)
		}
	}
	for shown, want := range map[string]string{"10.1.2.3": "127.1.2.3", "127.1.2.3": "127.1.2.3", "192.168.10.1": "192.168.10.1", "": ""} {
		if got := loopback(shown); got != want {
			t.Errorf("the process of a Pod with %q listens at %q, not at %q", shown, got, want)
		}
	}
}

// A demo whose servers deploy no Gateway says so. It is played in a cluster of its own, for a guest puts no
// sample into the cluster.
func TestDemoConvictsServersThatDeployNoGateway(t *testing.T) {
	var said strings.Builder
	idle := filepath.Join(t.TempDir(), "idle")
	if err := os.WriteFile(idle, fmt.Appendf(nil, "#!/bin/sh\nPILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER=false exec %s \"$@\"\n", buildPilot(t)), 0o700); err != nil {
		t.Fatal(err)
	}
	err := play(t.Context(), settings{
		demo: true, timing: quick, only: 1,
		pilot: idle, dataplane: "/bin/false", helmProgram: buildHelm(t), charts: charts,
	}, &screen{out: &said})
	if err == nil || !strings.Contains(err.Error(), `the Gateway: it is not programmed yet; the Gateway is answered by a Pod of "", not of stable`) {
		t.Errorf("the demo says %v; it printed\n%s", err, said.String())
	}
}
