package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/tests/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestUnsettled(t *testing.T) {
	canary := lock{holder: "a", key: "canary"}
	cases := []struct {
		name  string
		lock  *lock
		spans []span
		want  string
	}{
		{"settled", &canary, []span{spanOf("b", 0, 1), spanOf("a", 2, alive)}, ""},
		{"nobody works", &canary, []span{spanOf("b", 0, 1)}, "0 replicas work"},
		{"two work", &canary, []span{spanOf("b", 0, alive), spanOf("a", 2, alive)}, "2 replicas work"},
		{"no lock", nil, []span{spanOf("a", 2, alive)}, "no lock"},
		{"unreadable", &lock{unreadable: true}, []span{spanOf("a", 2, alive)}, "no lock that can be read"},
		{"another holds", &lock{holder: "b", key: "canary"}, []span{spanOf("a", 2, alive)}, `lock names "b"`},
		{"another revision", &lock{holder: "a", key: "stable"}, []span{spanOf("a", 2, alive)}, "of stable leads"},
		{"the old term", &canary, []span{spanOf("a", 1, alive)}, "not begun a new term"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			v := view{locks: map[string]lock{}}
			if c.lock != nil {
				v.locks[witnessed] = *c.lock
			}
			for i := range c.spans {
				c.spans[i].election = witnessed
			}
			got := unsettled(v, c.spans, "canary", at(1))
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("unsettled: %q, want %q", got, c.want)
			}
		})
	}
}

func TestOverlap(t *testing.T) {
	if err := overlap([]span{spanOf("a", 0, 1), spanOf("b", 1, alive)}, at(9)); err != nil {
		t.Errorf("one after the other: %v", err)
	}
	err := overlap([]span{spanOf("a", 0, 1), spanOf("b", 0.75, alive)}, at(9))
	if err == nil || !strings.Contains(err.Error(), "a and b worked on e together for 250ms") {
		t.Errorf("a quarter of a second at once: %v", err)
	}
}

func TestSpread(t *testing.T) {
	v := view{
		namespaces: map[string]bool{"a": true, "b": true, "c": true, "kube-system": true},
		bundles:    map[string]string{"a": "pem", "b": "another"},
	}
	in, of, missing := v.spread("pem", map[string]bool{"kube-system": true})
	if in != 1 || of != 3 || len(missing) != 2 {
		t.Errorf("in place in %d of %d, missing in %v; want 1 of 3, missing in b and c", in, of, missing)
	}
}

// buildPilot builds the server.
func buildPilot(t *testing.T) string {
	t.Helper()
	pilot := filepath.Join(t.TempDir(), "pilot")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", pilot, "incumbent.dev/incumbent/cmd/pilot")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the server: %v\n%s", err, out)
	}
	return pilot
}

// charts is where they lie.
var charts = filepath.Join("..", "..", "deploy", "charts")

// buildHelm builds what installs them, as `make build` does, so that it is compiled once.
func buildHelm(t *testing.T) string {
	t.Helper()
	helm := filepath.Join(t.TempDir(), "helm")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", helm, ".")
	build.Dir, build.Env = filepath.Join("..", "..", "tools", "helm"), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building helm: %v\n%s", err, out)
	}
	return helm
}

// killedByTerm runs a server for which SIGTERM is what SIGKILL is.
const killedByTerm = `#!/bin/sh
%s "$@" &
child=$!
trap 'kill -KILL $child; wait $child; exit 143' TERM
wait $child
`

// TestDemoConvicts plays the demo with servers that are wrong: a demo that calls these right
// could not call anything wrong. It plays as a guest in a cluster that was there before,
// and has to leave that as it was.
func TestDemoConvicts(t *testing.T) {
	c, err := cluster.Start(t.Context(), cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	}()
	pilot, helm := buildPilot(t), buildHelm(t)
	mortal := filepath.Join(t.TempDir(), "mortal")
	if err := os.WriteFile(mortal, fmt.Appendf(nil, killedByTerm, pilot), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, fault := range []struct {
		name string
		set  settings
		want string
	}{
		{"elections are off", settings{lawless: true}, "act 1, elect: two replicas of stable start, then two of canary: two at once"},
		{"the work's client has no gate", settings{ungated: true}, "the others have gone past it"},
		{"there is no fence", settings{unfenced: true}, "its fence does not stand"},
		{"nobody coordinates", settings{coordinated: true, uncoordinated: true, older: pilot, timing: timing{lease: 3 * time.Second, renew: 2 * time.Second, retry: 500 * time.Millisecond}}, `and it should be by "nominated"`},
		{"SIGTERM kills", settings{pilot: mortal, only: 5}, `by "lease-expired", and it should be by "lock-free"`},
	} {
		t.Run(fault.name, func(t *testing.T) {
			before := inventory(t, c)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			set := fault.set
			set.demo, set.timing, set.kubeconfig, set.pilot = true, cmp.Or(set.timing, quick), c.Kubeconfig(), cmp.Or(set.pilot, pilot)
			set.helmProgram, set.charts = helm, charts
			var said strings.Builder
			err = play(ctx, set, &screen{out: &said})
			if err == nil || !strings.Contains(err.Error(), fault.want) {
				t.Errorf("the demo says %v, want %s; it printed\n%s", err, fault.want, said.String())
			}
			for after := inventory(t, c); !slices.Equal(before, after); after = inventory(t, c) {
				select {
				case <-ctx.Done():
					t.Fatalf("the demo left %q, and took %q", without(after, before), without(before, after))
				case <-time.After(recheck):
				}
			}
		})
	}
	t.Run("somebody else's objects", func(t *testing.T) {
		client := c.Client(t).Kube()
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), namespaceObject(systemNamespace), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		err = play(t.Context(), settings{demo: true, timing: quick, pilot: pilot, kubeconfig: c.Kubeconfig()}, &screen{out: io.Discard})
		if err == nil || !strings.Contains(err.Error(), "namespaces istio-system already, which is left alone") {
			t.Errorf("it says %v", err)
		}
		if there, err := client.CoreV1().Namespaces().Get(t.Context(), systemNamespace, metav1.GetOptions{}); err != nil || there.DeletionTimestamp != nil {
			t.Errorf("the namespace is %v (%v)", there, err)
		}
	})
}

// without is what of some is not among others.
func without(some, others []string) []string {
	return slices.DeleteFunc(slices.Clone(some), func(name string) bool { return slices.Contains(others, name) })
}

// inventory lists what a cluster has of all that a demo makes.
func inventory(t *testing.T, c *cluster.Cluster) []string {
	t.Helper()
	config := c.Admin()
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer http.CloseIdleConnections()
	client, err := dynamic.NewForConfigAndClient(config, http)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, resource := range []schema.GroupVersionResource{
		{Version: "v1", Resource: "namespaces"},
		{Version: "v1", Resource: "nodes"},
		{Version: "v1", Resource: "pods"},
		{Version: "v1", Resource: "configmaps"},
		{Group: "apps", Version: "v1", Resource: "deployments"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"},
	} {
		list, err := client.Resource(resource).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range list.Items {
			if item.GetName() == "kube-root-ca.crt" {
				continue // the cluster itself makes it, whenever it likes
			}
			names = append(names, resource.Resource+" "+item.GetNamespace()+"/"+item.GetName())
		}
	}
	slices.Sort(names)
	return names
}
