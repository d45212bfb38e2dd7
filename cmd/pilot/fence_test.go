package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"incumbent.dev/incumbent/tests/cluster"
)

// rendered wants a fence that is rendered with a flag to have something in it that one without
// has not, or the other way round.
func rendered(flag, with, without string) func(*testing.T) {
	return func(t *testing.T) {
		plain, err := pilot(t, "fence", "render", "--service-account=a-{revision}", "--revisions=only")
		if err != nil {
			t.Fatal(err)
		}
		args := []string{"fence", "render", "--service-account=a-{revision}", "--revisions=only"}
		changed, err := pilot(t, append(args, flag)...)
		if err != nil {
			t.Fatal(err)
		}
		if with != "" && (!strings.Contains(changed, with) || strings.Contains(plain, with)) {
			t.Errorf("%q is to be in the fence with %s alone", with, flag)
		}
		if without != "" && (strings.Contains(changed, without) || !strings.Contains(plain, without)) {
			t.Errorf("%q is to be in the fence without %s alone", without, flag)
		}
	}
}

// fenceEffects are what each flag of pilot fence does. One that is not here fails the test.
var fenceEffects = map[string]func(t *testing.T){
	"set":                rendered("--set=my-set", "incumbent.dev/fence: my-set", "incumbent.dev/fence: istio-system"),
	"namespace":          rendered("--namespace=mesh", "namespace: mesh", "namespace: istio-system"),
	"lock":               rendered("--lock=lease", "kind: Lease", "kind: ConfigMap"),
	"service-account":    rendered("--service-account=other/name", "system:serviceaccount:other:name", ""),
	"revisions":          rendered("--revisions=second", "system:serviceaccount:istio-system:a-second", ""),
	"coordinator":        rendered("--coordinator=somebody", "somebody", ""),
	"without-lock-guard": rendered("--without-lock-guard", "", "configmap.lock\n"),
	"file":               fileHasItsEffect,
	"kubeconfig":         fenceReachesItsCluster,
	"context":            fenceReachesItsCluster,
	"wait":               waitHasItsEffect,
}

func TestEveryFlagOfTheFenceHasItsEffect(t *testing.T) {
	known := map[string]bool{}
	for _, root := range command(programs{}).Commands() {
		if root.Name() != "fence" {
			continue
		}
		each(root, func(f *pflag.Flag) { known[f.Name] = true })
		for _, verb := range root.Commands() {
			each(verb, func(f *pflag.Flag) { known[f.Name] = true })
		}
	}
	for name := range known {
		if fenceEffects[name] == nil {
			t.Errorf("nobody tries what pilot fence --%s does: give it an entry in fenceEffects", name)
		}
	}
	for name, effect := range fenceEffects {
		if !known[name] {
			t.Errorf("fenceEffects has %s, which pilot fence has not", name)
		}
		t.Run(name, effect)
	}
}

func fileHasItsEffect(t *testing.T) {
	name := filepath.Join(t.TempDir(), "fence.yaml")
	const one = "elections:\n- {election: mine, namespace: ns, lock: lease, serviceAccounts: [ns/s], guards: [{resources: [secrets], names: [x]}]}\n"
	if err := os.WriteFile(name, []byte(one), 0o600); err != nil {
		t.Fatal(err)
	}
	rendered("--file="+name, "mine", "istio-namespace-controller-election")(t)
}

// fenceReachesItsCluster: by a kubeconfig whose own context leads nowhere.
func fenceReachesItsCluster(t *testing.T) {
	file, err := clientcmd.LoadFromFile(kubeconfig(t, adminConfig(t)))
	if err != nil {
		t.Fatal(err)
	}
	file.Contexts["right"] = file.Contexts[file.CurrentContext]
	file.Clusters["dead"], file.Contexts["dead"] = &api.Cluster{Server: "http://127.0.0.1:1"}, &api.Context{Cluster: "dead"}
	file.CurrentContext = "dead"
	path := filepath.Join(t.TempDir(), "two")
	if err := clientcmd.WriteToFile(*file, path); err != nil {
		t.Fatal(err)
	}
	if out, err := pilot(t, "fence", "remove", "--set=none-such", "--kubeconfig="+path, "--context=right"); err != nil || out != "there is no fence \"none-such\"\n" {
		t.Errorf("%v, %s", err, out)
	}
	if _, err := pilot(t, "fence", "remove", "--set=none-such", "--kubeconfig="+path); err == nil {
		t.Error("it reached a cluster that is not there")
	}
}

// waitHasItsEffect goes through all that an administrator does, on a real API server.
func waitHasItsEffect(t *testing.T) {
	home, err := cluster.Shared(t).NewNamespace(t.Context(), "fence")
	if err != nil {
		t.Fatal(err)
	}
	with := []string{"--kubeconfig=" + kubeconfig(t, adminConfig(t)), "--namespace=" + home, "--lock=lease"}
	run := func(verb string, more ...string) string {
		t.Helper()
		out, err := pilot(t, append(append([]string{"fence", verb}, with...), more...)...)
		if err != nil {
			t.Errorf("%s: %v", verb, err)
		}
		return out
	}
	defer func() { _, _ = pilot(t, append([]string{"fence", "remove"}, with...)...) }()
	if out := run("install", "--wait=0"); !strings.Contains(out, "applied ") || strings.Contains(out, "holds ") {
		t.Errorf("it did not only install:\n%s", out)
	}
	if out := run("install", "--wait=30s"); !strings.Contains(out, "unchanged ") || !strings.Contains(out, "holds ") {
		t.Errorf("it did not look whether the fence stands:\n%s", out)
	}
	if out := run("verify"); !strings.Contains(out, "holds ") || strings.Contains(out, "FAILS") {
		t.Errorf("it does not hold:\n%s", out)
	}
	if out := run("remove"); !strings.Contains(out, "removed ") {
		t.Errorf("nothing was removed:\n%s", out)
	}
	if out, err := pilot(t, append([]string{"fence", "verify"}, with...)...); err == nil || !strings.Contains(out, "FAILS") {
		t.Errorf("what is not there holds: %v\n%s", err, out)
	}
}

// What the environment says is what the flags say where they are not given.
func TestFenceByTheEnvironment(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "mesh")
	t.Setenv("LEADER_ELECTION_LOCK", "lease")
	t.Setenv("KUBECONFIG", kubeconfig(t, adminConfig(t)))
	out, err := pilot(t, "fence", "render")
	if err != nil || !strings.Contains(out, "namespace: mesh") || !strings.Contains(out, "kind: Lease") || strings.Contains(out, "kind: ConfigMap") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := pilot(t, "fence", "remove", "--set=none-such"); err != nil || !strings.HasPrefix(out, "there is no fence") {
		t.Errorf("%v, %s", err, out)
	}
	t.Setenv("ENABLE_WRITE_GATE", "maybe")
	if _, err := pilot(t, "fence", "render"); err == nil || !strings.Contains(err.Error(), "ENABLE_WRITE_GATE") {
		t.Errorf("a wrong environment: %v", err)
	}
}
