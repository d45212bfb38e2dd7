package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pilot/leaderelection/fence"
	"incumbent.dev/incumbent/pkg/kube"
)

// Elections within a revision have declarations of their own for each, and without knowing
// the revisions there is no telling which.
func TestDeclarationsOfElectionsWithinARevision(t *testing.T) {
	guards := []fence.Guard{{Resources: []string{"secrets"}, Names: []string{"x"}}}
	rows := []election{{id: "all", writes: guards}, {id: "each", perRevision: true, writes: guards}, {id: "both"}}
	if shared, perRevision := electionsOf(rows); !slices.Equal(shared, []string{"all", "both"}) || !slices.Equal(perRevision, []string{"each"}) {
		t.Errorf("the elections are %q and %q", shared, perRevision)
	}
	config := FenceConfig{Namespace: "mesh", ServiceAccounts: []string{"a-{revision}"}}.withDefaults()
	if _, err := config.declarations(rows); err == nil || !strings.Contains(err.Error(), "election each is held within each revision: name them with --revisions") {
		t.Errorf("without the revisions: %v", err)
	}
	config.Revisions = []string{"x", "y"}
	got, err := config.declarations(rows) // of which the last has nothing to guard
	want := []fence.Declaration{
		{Election: "all", Namespace: "mesh", Lock: fence.ConfigMap, ServiceAccounts: []string{"mesh/a-x", "mesh/a-y"}, Guards: guards, Members: true},
		{Election: "each", Namespace: "mesh", Lock: fence.ConfigMap, ServiceAccounts: []string{"mesh/a-{revision}"}, Revisions: []string{"x", "y"}, Guards: guards, Members: true},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\n%+v\nwant %+v", err, got, want)
	}
}

// The mode is that of the flag, if there is one, and otherwise each declaration's own.
func TestModeOfDeclarations(t *testing.T) {
	name := filepath.Join(t.TempDir(), "fence.yaml")
	const two = "elections:\n- {election: a, namespace: ns, lock: lease, serviceAccounts: [ns/s], mode: warn, guards: [{resources: [secrets], names: [x]}]}\n" +
		"- {election: b, namespace: ns, lock: lease, serviceAccounts: [ns/s], guards: [{resources: [secrets], names: [y]}]}\n"
	if err := os.WriteFile(name, []byte(two), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[string][]fence.Mode{"": {"warn", ""}, "audit": {"audit", "audit"}} {
		all, err := FenceConfig{File: name, Mode: mode}.Declarations()
		if err != nil || len(all) != 2 || all[0].Mode != want[0] || all[1].Mode != want[1] {
			t.Errorf("--mode=%s: %v, %+v", mode, err, all)
		}
	}
}

// commands are all that an administrator can do by a FenceConfig.
var commands = map[string]func(FenceConfig, context.Context, io.Writer) error{
	"install": FenceConfig.Install, "verify": FenceConfig.Verify, "remove": FenceConfig.Remove,
	"render": func(c FenceConfig, _ context.Context, out io.Writer) error { return c.Render(out) },
	"report": func(c FenceConfig, _ context.Context, out io.Writer) error { return c.Report(out) },
}

// only are the revisions of control planes that have one.
var only = []string{"stable"}

// What a command cannot begin with is its error, and nothing is sent.
func TestCommandsEndWithWhatIsWrong(t *testing.T) {
	for name, test := range map[string]struct {
		config FenceConfig
		not    []string // the commands that do not care
		want   string
	}{
		"no revisions":    {FenceConfig{}, []string{"remove", "report"}, "name them with --revisions"},
		"no such file":    {FenceConfig{File: "/no/such"}, []string{"remove", "report"}, "--file: open /no/such"},
		"no such lock":    {FenceConfig{Revisions: only, Lock: "endpoints"}, []string{"remove", "report"}, `lock "endpoints"`},
		"no such cluster": {FenceConfig{Revisions: only, Kubernetes: kube.Source{Path: "/no/such"}}, []string{"render", "report"}, "/no/such"},
		"no client":       {FenceConfig{Revisions: only, RESTConfig: &rest.Config{Host: "https://%zz"}}, []string{"render", "report"}, "%zz"},
		"no further client": {
			FenceConfig{Revisions: only, RESTConfig: &rest.Config{Host: "http://127.0.0.1:1"}, APIServers: []string{"https://%zz"}},
			[]string{"render", "report", "verify"}, "--api-server=https://%zz",
		},
		"no such log": {FenceConfig{AuditLog: "/no/such"}, []string{"render", "install", "verify", "remove"}, "--audit-log: open /no/such"},
	} {
		for command, run := range commands {
			if slices.Contains(test.not, command) {
				continue
			}
			var out bytes.Buffer
			if err := run(test.config, t.Context(), &out); err == nil || !strings.Contains(err.Error(), test.want) || out.Len() > 0 {
				t.Errorf("%s, %s: error %v, and it says\n%s", name, command, err, &out)
			}
		}
	}
}

// An API server that is listed and cannot be asked: an installation changes nothing, unless
// that is accepted; the other commands say so and go on.
func TestCommandsWhereAnAPIServerCannotBeAsked(t *testing.T) {
	for _, accepted := range []bool{false, true} {
		for _, command := range []string{"install", "verify", "remove"} {
			asked := 0
			config := FenceConfig{Revisions: only, AllowUnclear: accepted, RESTConfig: apart(func(r *http.Request) (*http.Response, error) {
				if r.URL.Hostname() == "10.0.0.1" {
					asked++
				}
				return nil, errAway
			}, slice([]discoveryv1.EndpointPort{port("https", 6443)}, "10.0.0.2"))}
			var out bytes.Buffer
			err := commands[command](config, t.Context(), &out)
			if !errors.Is(err, errAway) && !strings.Contains(err.Error(), errAway.Error()) {
				t.Errorf("%s: %v", command, err)
			}
			nothing := command == "install" && !accepted
			if changed := !strings.Contains(err.Error(), "nothing was changed"); changed == nothing || (asked > 0) == nothing {
				t.Errorf("%s, accepted %v: %v, after %d requests", command, accepted, err, asked)
			}
			if said := strings.Contains(out.String(), "API server https://10.0.0.2:6443, which the Service default/kubernetes lists, can be asked"); said == nothing {
				t.Errorf("%s, accepted %v: it says\n%s", command, accepted, &out)
			}
		}
	}
}

// What was found in an audit log, or that nothing was; and what is no audit log.
func TestReport(t *testing.T) {
	const event = `{"stage":"ResponseComplete","verb":"update","objectRef":{"resource":"secrets","namespace":"ns","name":"x"},` +
		`"responseStatus":{"message":"ValidatingAdmissionPolicy 'incumbent-fence.s.work-1' with binding 'y' denied request: not the leader"}}`
	log := func(content string) string {
		name := filepath.Join(t.TempDir(), "audit.log")
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for name, test := range map[string]struct {
		log, output string
		with, wrong string
	}{
		"a table":            {log(event), "table", "secrets ns/x", ""},
		"a table by default": {log(event), "", "secrets ns/x", ""},
		"as YAML":            {log(event), "yaml", "object: secrets ns/x", ""},
		"nothing":            {log(""), "table", "no fence found anything wrong\n", ""},
		"no log":             {log("hello"), "table", "", "line 1 of the audit log"},
	} {
		var out bytes.Buffer
		err := FenceConfig{AuditLog: test.log, Output: test.output}.Report(&out)
		if (err == nil) != (test.wrong == "") || err != nil && (!strings.Contains(err.Error(), test.wrong) || !strings.Contains(err.Error(), "--audit-log="+test.log)) {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(out.String(), test.with) || test.log != "" && name != "nothing" && strings.Contains(out.String(), "nothing wrong") {
			t.Errorf("%s:\n%s", name, &out)
		}
		if isTable := strings.HasPrefix(out.String(), "- "); isTable != (test.output == "yaml") {
			t.Errorf("%s:\n%s", name, &out)
		}
	}
}

// Without a file, the log is what comes in by the standard input.
func TestReportOfTheStandardInput(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	before := os.Stdin
	os.Stdin = reader
	defer func() { os.Stdin = before }()
	defer reader.Close()
	if _, err := writer.WriteString("no event\n"); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	if err := (FenceConfig{AuditLog: "-"}).Report(io.Discard); err == nil || !strings.Contains(err.Error(), "line 1 of the audit log") {
		t.Errorf("what came in was not read: %v", err)
	}
}
