package bootstrap

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/pilot/leaderelection"
)

// A row whose kind the API server does not know waits, and says so once; the other rows work. A
// definition that comes lets it begin.
func TestARowWaitsForItsKinds(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	waiting := newController()
	row := waiting.rows()[0]
	row.kinds = []schema.GroupVersionResource{
		{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"}, {Version: "v1", Resource: "pods"},
		{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"},
	}
	config := e.config(t, "a")
	r := start(t, config, append([]election{{
		id: leaderelection.NamespaceController, guards: namespaceController, rights: namespaceRights,
	}}, row))
	const line = "the API server does not know some kinds, waiting for their definitions"
	await(t, "it is said", func() bool { return r.lines.count(line, "election="+electionID) == 1 })
	await(t, "the other row leads", func() bool { return r.election(t).Leading })
	if r.lines.count(line, `missing="[gateways.gateway.networking.k8s.io httproutes.gateway.networking.k8s.io]"`) != 1 {
		t.Error("the line does not name the kinds")
	}
	select {
	case <-waiting.began:
		t.Error("the row works")
	default:
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := e.cluster.LoadGatewayAPI(ctx); err != nil {
		t.Fatal(err)
	}
	select {
	case <-waiting.began:
	case <-ctx.Done():
		t.Fatal("the row does not work, with the kinds there")
	}
	if r.lines.count(line) != 1 || r.lines.count("the API server knows all kinds now", "election="+electionID) != 1 {
		t.Error("it is said more often than once, or not that it is over")
	}
}
