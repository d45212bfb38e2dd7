package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/tests/cluster"
)

const gatewaySwitch = "PILOT_ENABLE_GATEWAY_API"

// gatewayProcess is a server of a revision of its own, in a namespace of that name.
type gatewayProcess struct {
	*process
	home   string
	client gatewayclient.GatewayV1Interface
}

// newGatewayProcess runs one with these variables.
func newGatewayProcess(t *testing.T, env ...string) *gatewayProcess {
	t.Helper()
	if err := cluster.Shared(t).LoadGatewayAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	client, err := gatewayclient.NewForConfig(adminConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	home, file := newNamespaces(t, "gateways", 1)[0], filepath.Join(t.TempDir(), "no-bundle")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	config := kubeconfig(t, identityFor(t, bootstrap.Config{Revision: home}, home, "a"))
	p := launch(t, "for gateways", env, "server", "--kubeconfig="+config, "--namespace="+home, "--revision="+home, "--identity=a",
		"--address=127.0.0.1:0", "--ca-bundle="+file, "--ingress-controller-mode=off")
	return &gatewayProcess{process: p, home: home, client: client}
}

// elects are the elections that a process takes part in, beside the first.
func (p *process) elects(t *testing.T) (ids []string) {
	t.Helper()
	var all []struct{ ID string }
	await(t, "it says what it elects", func() bool {
		_, text := p.page(t, "/debug/elections")
		return json.Unmarshal([]byte(text), &all) == nil && len(all) > 0
	})
	for _, e := range all[1:] {
		ids = append(ids, e.ID)
	}
	return ids
}

// gateway makes a Gateway of the revision, and says what becomes of it.
func (p *gatewayProcess) gateway(t *testing.T, w *world) (accepted, deployed func() bool) {
	t.Helper()
	_, err := p.client.Gateways(p.home).Create(t.Context(), &gateway.Gateway{
		ObjectMeta: metav1.ObjectMeta{Name: "gw", Labels: map[string]string{"istio.io/rev": p.home}},
		Spec: gateway.GatewaySpec{
			GatewayClassName: "istio", Listeners: []gateway.Listener{{Name: "http", Port: 8080, Protocol: gateway.HTTPProtocolType}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	accepted = func() bool {
		g, err := p.client.Gateways(p.home).Get(t.Context(), "gw", metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(g.Status.Conditions, func(c metav1.Condition) bool { return c.Reason == "Accepted" })
	}
	deployed = func() bool {
		_, err := w.admin.AppsV1().Deployments(p.home).Get(t.Context(), "gw-istio", metav1.GetOptions{})
		return err == nil
	}
	return accepted, deployed
}

// gatewayAPI: without it a server has none of its elections, and by default it has both.
func gatewayAPI(t *testing.T, w *world) {
	_, within := bootstrap.Elections(bootstrap.Config{})
	if all := w.byEnv.elects(t); slices.Contains(all, within[0]) || slices.Contains(all, within[1]) {
		t.Errorf("without the Gateway API its elections are %q", all)
	}
	if all := newGatewayProcess(t, gatewaySwitch+"_GATEWAYCLASS_CONTROLLER=false").elects(t); !slices.Equal(all, within) {
		t.Errorf("by default its elections are %q", all)
	}
}

// gatewaysWithout has one of the two controllers turned off, and the other at work.
func gatewaysWithout(which string) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		p := newGatewayProcess(t, gatewaySwitch+"_"+which+"=false", gatewaySwitch+"_GATEWAYCLASS_CONTROLLER=false")
		on, off := p.gateway(t, w)
		if which == "STATUS" {
			on, off = off, on
		}
		await(t, "what is on has its effect", on)
		if all := p.elects(t); off() || len(all) != 1 {
			t.Errorf("without %s its elections are %q, and it has its effect: %v", which, all, off())
		}
	}
}

// gatewayClass: a server that is told not to leaves the class missing, and another one makes it. No other test here has a class
// made.
func gatewayClass(t *testing.T, w *world) {
	p := newGatewayProcess(t, gatewaySwitch+"_GATEWAYCLASS_CONTROLLER=false")
	accepted, _ := p.gateway(t, w)
	await(t, "it works", accepted)
	class := func() bool {
		_, err := p.client.GatewayClasses().Get(t.Context(), "istio", metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return err == nil
	}
	if class() {
		t.Error("there is a class")
	}
	newGatewayProcess(t)
	await(t, "there is a class", class)
}
