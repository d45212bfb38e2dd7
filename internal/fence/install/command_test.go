package install

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pkg/kube"
)

var commands = map[string]func(Config, context.Context, io.Writer) error{
	"install": Config.Install, "verify": Config.Verify, "remove": Config.Remove,
	"render": func(c Config, _ context.Context, out io.Writer) error { return c.Render(out) },
	"report": func(c Config, _ context.Context, out io.Writer) error { return c.Report(out) },
}

func TestCommands_WrongInput(t *testing.T) {
	for name, x := range map[string]struct {
		config Config
		only   []string // commands that need the input
		want   string
	}{
		"no file":       {Config{File: "/no/such"}, []string{"render", "install", "verify"}, "--file: open /no/such"},
		"lock":          {Config{Elections: sharedElection, ServiceAccounts: []string{"a"}, Lock: "endpoints"}, []string{"render", "install", "verify"}, `lock "endpoints"`},
		"no kubeconfig": {Config{Elections: sharedElection, ServiceAccounts: []string{"a"}, Kubernetes: kube.Source{Path: "/no/such"}}, []string{"install", "verify", "remove"}, "/no/such"},
		"address":       {Config{Elections: sharedElection, ServiceAccounts: []string{"a"}, RESTConfig: &rest.Config{Host: "https://%zz"}}, []string{"install", "verify", "remove"}, "%zz"},
		"api server": {
			Config{Elections: sharedElection, ServiceAccounts: []string{"a"}, RESTConfig: &rest.Config{Host: "http://127.0.0.1:1"}, APIServers: []string{"https://%zz"}},
			[]string{"install", "verify", "remove"}, "--api-server=https://%zz",
		},
		"no audit log": {Config{AuditLog: "/no/such"}, []string{"report"}, "--audit-log: open /no/such"},
	} {
		for _, command := range x.only {
			var out bytes.Buffer
			if err := commands[command](x.config, t.Context(), &out); err == nil || !strings.Contains(err.Error(), x.want) || out.Len() > 0 {
				t.Errorf("%s, %s: error %v, and output\n%s", name, command, err, &out)
			}
		}
	}
}

func TestInstall_RepeatsVerification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := 0
		there := stubbed(func(r apiserver.Request) apiserver.Fault {
			requests++
			return away(r)
		})
		set, declarations, err := Config{Elections: sharedElection, ServiceAccounts: []string{"a"}}.render()
		harness.Must(t, err)
		late := errors.New("too late")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 10*verifyPause-time.Millisecond, late)
		defer cancel()
		_, err = (&connection{clients: []kube.Client{clientOf(t, there)}}).await(ctx, set, declarations)
		if !errors.Is(err, late) || !strings.Contains(err.Error(), errAway.Error()) || !strings.Contains(err.Error(), there.Host) || requests != 10 {
			t.Errorf("after %d requests: %v", requests, err)
		}
	})
}

func TestCommands_UnreachableServer(t *testing.T) {
	for _, accepted := range []bool{false, true} {
		for _, command := range []string{"install", "verify", "remove"} {
			synctest.Test(t, func(t *testing.T) { // each server must answer within reachTimeout
				requests := 0
				config := Config{Elections: sharedElection, ServiceAccounts: []string{"a"}, Judging: Judging{AllowUnclear: accepted}, RESTConfig: listing(func(r apiserver.Request) apiserver.Fault {
					if r.URL.Hostname() == "10.0.0.1" {
						requests++
					}
					return away(r)
				}, slice([]discoveryv1.EndpointPort{port("https", 6443)}, "10.0.0.2"))}
				var out bytes.Buffer
				err := commands[command](config, t.Context(), &out)
				if err == nil || !strings.Contains(err.Error()+out.String(), errAway.Error()) {
					t.Fatalf("%s: %v\n%s", command, err, &out)
				}
				unchanged := command == "install" && !accepted
				if strings.Contains(err.Error(), "nothing was changed") != (command == "install") || (requests == 0) != unchanged {
					t.Errorf("%s, accepted: %t: %v, after %d requests", command, accepted, err, requests)
				}
				if !strings.Contains(out.String(), "API server https://10.0.0.2:6443 (listed by Service default/kubernetes) is reachable") {
					t.Errorf("%s, accepted: %t: output\n%s", command, accepted, &out)
				}
			})
		}
	}
}

func TestReport_Output(t *testing.T) {
	const event = `{"stage":"ResponseComplete","verb":"update","objectRef":{"resource":"secrets","namespace":"ns","name":"x"},` +
		`"responseStatus":{"message":"ValidatingAdmissionPolicy 'incumbent-fence.s.work-1' with binding 'y' denied request: not the leader"}}`
	defer func(before *os.File) { os.Stdin = before }(os.Stdin)
	for name, x := range map[string]struct{ log, output, want, err string }{
		"table":   {event, "table", "secrets ns/x", ""},
		"yaml":    {event, "yaml", "object: secrets ns/x", ""},
		"none":    {strings.Replace(event, "incumbent-fence.", "other.", 1), "table", "no violations found\n", ""},
		"empty":   {"", "table", "", "the log is empty"},
		"invalid": {"hello", "table", "", ":1: not a JSON event of an audit log"},
	} {
		path := filepath.Join(t.TempDir(), "audit.log")
		harness.Must(t, os.WriteFile(path, []byte(x.log), 0o600))
		for _, log := range []string{path, "-"} {
			file, err := os.Open(path)
			harness.Must(t, err)
			defer file.Close()
			os.Stdin = file
			var out bytes.Buffer
			err = Config{AuditLog: log, Output: x.output}.Report(&out)
			if (err == nil) != (x.err == "") || err != nil && (!strings.Contains(err.Error(), x.err) || !strings.Contains(err.Error(), "--audit-log="+log)) {
				t.Errorf("%s, %s: %v", name, log, err)
			}
			if !strings.Contains(out.String(), x.want) || strings.HasPrefix(out.String(), "- ") != (name == "yaml") {
				t.Errorf("%s, %s:\n%s", name, log, &out)
			}
		}
	}
}

func TestFindings_Output(t *testing.T) {
	findings := []Finding{{Server: "s", What: "one", Verdict: Holds}, {Server: "s", What: "two", Verdict: Fails, Why: "so"}}
	text, err := json.MarshalIndent([]Finding{findings[1], findings[0]}, "", "  ")
	harness.Must(t, err)
	const table = "FAILS    two: so\n2 checks: 1 passed, 0 skipped, 0 unclear, 1 failed\n"
	for output, want := range map[string]string{
		"": table, "table": table, "json": string(text) + "\n",
		"yaml": "- server: s\n  verdict: fails\n  what: two\n  why: so\n- server: s\n  verdict: holds\n  what: one\n",
	} {
		c := Config{Output: output}
		var out bytes.Buffer
		if err := c.print(&out, findings); err != nil || out.String() != want {
			t.Errorf("--output=%s: %v\n%s", output, err, &out)
		}
		if err := c.print(broken{}, findings); !errors.Is(err, errAway) {
			t.Errorf("--output=%s, to a writer that fails: %v", output, err)
		}
	}
	var all bytes.Buffer
	if err := (Config{Verbose: true}).print(&all, findings); err != nil || !strings.HasPrefix(all.String(), "FAILS    two: so\nholds    one\n2 checks") {
		t.Errorf("%v\n%s", err, &all)
	}
	if err := (Config{Output: "xml"}).print(io.Discard, findings); err == nil || err.Error() != "--output=xml: use table, json or yaml" {
		t.Errorf("unknown format: %v", err)
	}
}

func hosts(configs []*rest.Config) (all []string) {
	for _, c := range configs {
		all = append(all, c.Host)
	}
	slices.Sort(all)
	return all
}
