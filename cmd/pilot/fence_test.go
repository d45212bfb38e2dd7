package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
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
		changed, err := pilot(t, append(args, strings.Fields(flag)...)...)
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
	"lock":               rendered("--lock=lease", "", "kind: ConfigMap"),
	"service-account":    rendered("--service-account=other/name", "system:serviceaccount:other:name", ""),
	"revisions":          rendered("--revisions=second", "system:serviceaccount:istio-system:a-second", ""),
	"coordinator":        rendered("--coordinator=somebody", "somebody", ""),
	"coordinated":        rendered("--coordinated --lock=lease", "leasecandidates", "kind: ConfigMap"),
	"without-lock-guard": rendered("--without-lock-guard", "", "configmap.lock"),
	"file":               fileHasItsEffect,

	"other-service-account": rendered("--other-service-account=second-*", "startsWith(''system:serviceaccount:istio-system:second-'')", ""),
	"kubeconfig":            fenceReachesItsCluster,
	"context":               fenceReachesItsCluster,
	"mode":                  rendered("--mode=audit", "- Audit", ""),
	"wait":                  installedHasItsEffects,
	"strict":                installedHasItsEffects,
	"allow-unclear":         installedHasItsEffects,
	"output":                installedHasItsEffects,
	"take-over":             installedHasItsEffects,
	"api-server":            installedHasItsEffects,
	"audit-log":             reportReadsItsLog,
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
	ran := map[uintptr]bool{}
	for name, effect := range fenceEffects {
		if !known[name] {
			t.Errorf("fenceEffects has %s, which pilot fence has not", name)
		}
		// A function of several flags has one place; those that rendered makes differ.
		at := reflect.ValueOf(effect).Pointer()
		if several := at == reflect.ValueOf(installedHasItsEffects).Pointer() || at == reflect.ValueOf(fenceReachesItsCluster).Pointer(); several && ran[at] {
			continue
		}
		ran[at] = true
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

func reportReadsItsLog(t *testing.T) {
	name := filepath.Join(t.TempDir(), "audit.log")
	const event = `{"stage":"ResponseComplete","verb":"update","objectRef":{"resource":"secrets","namespace":"ns","name":"x"},` +
		`"responseStatus":{"message":"ValidatingAdmissionPolicy 'incumbent-fence.s.work-1' with binding 'y' denied request: not the leader"}}`
	if err := os.WriteFile(name, []byte(event+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := pilot(t, "fence", "report", "--audit-log="+name)
	if err != nil || !strings.Contains(out, "secrets ns/x") || !strings.Contains(out, "not the leader") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := pilot(t, "fence", "report", "--audit-log="+name+".none"); err == nil || !strings.Contains(err.Error(), name+".none") {
		t.Errorf("of a log that is not there: %v", err)
	}
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
	if out, err := pilot(t, "fence", "remove", "--set=none-such", "--kubeconfig="+path, "--context=right"); err != nil || out != "fence \"none-such\" is not installed\n" {
		t.Errorf("%v, %s", err, out)
	}
	if _, err := pilot(t, "fence", "remove", "--set=none-such", "--kubeconfig="+path); err == nil {
		t.Error("it reached a cluster that is not there")
	}
}

// installedHasItsEffects goes through all that an administrator does, on a real API server.
// There are no servers, and not all of the fence can be tried.
func installedHasItsEffects(t *testing.T) {
	home := newNamespaces(t, "fence", 1)[0]
	with := []string{"--kubeconfig=" + kubeconfig(t, adminConfig(t)), "--namespace=" + home, "--lock=lease", "--revisions=only"}
	run := func(verb string, more ...string) (string, error) {
		return pilot(t, append(append([]string{"fence", verb}, with...), more...)...)
	}
	defer func() { _, _ = run("remove") }()
	for _, step := range []struct {
		args    []string
		with    []string
		without string
		wrong   string // what the error says; "": there is none
	}{
		{[]string{"install", "--wait=0"}, []string{"applied "}, "holds ", ""},
		{[]string{"install", "--wait=30s", "--allow-unclear"}, []string{"unchanged ", "holds "}, "FAILS", ""},
		{[]string{"verify", "--allow-unclear"}, []string{"holds "}, "FAILS", ""},
		{[]string{"verify"}, []string{"holds "}, "", "--allow-unclear"},
		{[]string{"verify", "--strict"}, nil, "", "--strict"},
		{[]string{"verify", "--allow-unclear", "-o", "json"}, []string{"{"}, "holds  ", ""},
		{[]string{"verify", "--allow-unclear", "--api-server=https://127.0.0.1:1"}, nil, "", "127.0.0.1:1"},
		{[]string{"install", "--wait=0", "--service-account=other"}, nil, "", "--take-over"},
		{[]string{"install", "--wait=0", "--service-account=other", "--take-over"}, []string{"applied "}, "", ""},
		{[]string{"remove"}, []string{"removed "}, "", ""},
		{[]string{"verify", "--allow-unclear"}, []string{"FAILS"}, "", "is not in effect"},
	} {
		out, err := run(step.args[0], step.args[1:]...)
		if (err == nil) != (step.wrong == "") || err != nil && !strings.Contains(err.Error(), step.wrong) {
			t.Errorf("%q: error %v, want %q", step.args, err, step.wrong)
		}
		for _, want := range step.with {
			if !strings.Contains(out, want) {
				t.Errorf("%q: no %q in\n%s", step.args, want, out)
			}
		}
		if step.without != "" && strings.Contains(out, step.without) {
			t.Errorf("%q: %q is in\n%s", step.args, step.without, out)
		}
	}
}

// What the environment says is what the flags say where they are not given.
func TestFenceByTheEnvironment(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "mesh")
	t.Setenv("LEADER_ELECTION_LOCK", "lease")
	t.Setenv("KUBECONFIG", kubeconfig(t, adminConfig(t)))
	out, err := pilot(t, "fence", "render", "--revisions=only")
	if err != nil || !strings.Contains(out, "namespace: mesh") || !strings.Contains(out, "kind: Lease") || strings.Contains(out, "kind: ConfigMap") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := pilot(t, "fence", "remove", "--set=none-such"); err != nil || !strings.HasSuffix(out, " is not installed\n") {
		t.Errorf("%v, %s", err, out)
	}
	t.Setenv("ENABLE_WRITE_GATE", "maybe")
	if _, err := pilot(t, "fence", "render", "--revisions=only"); err == nil || !strings.Contains(err.Error(), "ENABLE_WRITE_GATE") {
		t.Errorf("a wrong environment: %v", err)
	}
}
