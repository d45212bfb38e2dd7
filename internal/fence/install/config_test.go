package install

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

// configElections are an election that all revisions share and one per revision.
var configElections = []Election{{ID: "all", Coordinated: true, Guards: []fence.Guard{configMap()}}, {ID: "each", Lease: true, PerRevision: true, Guards: []fence.Guard{configMap()}}}

func TestConfig_Declarations(t *testing.T) {
	defaults := fence.Declaration{Namespace: "istio-system", Lock: record.ConfigMap, ServiceAccounts: []string{"istio-system/pilot-x", "istio-system/pilot-y"}}
	for name, x := range map[string]struct {
		config Config
		shared fence.Declaration
		each   fence.Declaration
	}{
		"defaults": {Config{}, defaults, fence.Declaration{Namespace: "istio-system", ServiceAccounts: []string{"istio-system/pilot-{revision}"}}},
		"accounts": {
			Config{Namespace: "mesh", ServiceAccounts: []string{"a-{revision}", "ns/b"}, Others: []string{"c-*"}},
			fence.Declaration{Namespace: "mesh", Lock: record.ConfigMap, ServiceAccounts: []string{"mesh/a-x", "mesh/a-y", "ns/b"}, Others: []string{"mesh/c-*"}},
			fence.Declaration{Namespace: "mesh", ServiceAccounts: []string{"mesh/a-{revision}", "ns/b"}, Others: []string{"mesh/c-*"}},
		},
		"coordinated": {
			Config{Lock: "lease", ServiceAccounts: []string{"a"}, Coordinators: []string{"c"}, Coordinated: true, WithoutLockGuard: true, Mode: "audit"},
			fence.Declaration{Namespace: "istio-system", Lock: record.Lease, ServiceAccounts: []string{"istio-system/a"}, Coordinators: []string{"c"}, Coordinated: true, WithoutLockGuard: true, Mode: fence.Audit},
			fence.Declaration{Namespace: "istio-system", ServiceAccounts: []string{"istio-system/a"}, Coordinators: []string{"c"}, WithoutLockGuard: true, Mode: fence.Audit},
		},
	} {
		x.config.Elections = configElections
		if _, err := x.config.Declarations(); err == nil || !strings.Contains(err.Error(), "election each has a lock per revision: give the revisions with --revisions") {
			t.Errorf("%s, without revisions: %v", name, err)
		}
		x.config.Revisions = []string{"x", "y"}
		x.shared.Election = "all"
		x.each.Election = "each"
		x.each.Lock = record.Lease
		x.each.Revisions = x.config.Revisions
		want := []fence.Declaration{x.shared, x.each}
		for i := range want {
			want[i].Guards = []fence.Guard{configMap()}
			want[i].Members = true
		}
		got, err := x.config.Declarations()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v\n%+v\nwant %+v", name, err, got, want)
		}
	}
}

// While an election moves to a Lease, the ConfigMap is the parameter, and both locks are guarded.
func TestConfig_LockMulti(t *testing.T) {
	for without, want := range map[bool]string{false: "configmap all 1, lease all 0, lease each 1, lease free 0", true: "configmap all 1, lease each 1"} {
		elections := append(slices.Clone(configElections), Election{ID: "free", Lease: true})
		all, err := Config{Lock: "multi", Elections: elections, Revisions: []string{"x"}, WithoutLockGuard: without}.Declarations()
		var got []string
		for _, d := range all {
			got = append(got, fmt.Sprintf("%s %s %d", d.Lock, d.Election, len(d.Guards)))
		}
		if err != nil || strings.Join(got, ", ") != want {
			t.Errorf("without guards of locks: %t: %q, %v", without, got, err)
		}
	}
}

func TestConfig_File(t *testing.T) {
	const good = "elections:\n- {election: a, namespace: ns, lock: lease, serviceAccounts: [ns/s], mode: warn, guards: [{resources: [secrets], names: [x]}]}\n"
	for content, want := range map[string]string{
		"":                      "the file has no declarations; give a list",
		"elections: []\n":       "the file has no declarations; give a list",
		"elections: [{a: b}]\n": `unknown field "a"; give a list`,
		"elections: 7\n":        "give a list of declarations under elections",
		good:                    "",
		strings.Replace(good, "lease", "endpoints", 1): `lock "endpoints"`,
	} {
		name := filepath.Join(t.TempDir(), "fence.yaml")
		harness.Must(t, os.WriteFile(name, []byte(content), 0o600))
		var out strings.Builder
		err := Config{File: name, Set: "a-set"}.Render(&out)
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) || out.Len() > 0 || strings.Contains(want, "give") && !strings.Contains(err.Error(), "--file="+name) {
				t.Errorf("%q: %v, and rendered\n%s", content, err, &out)
			}
			continue
		}
		text := out.String()
		policies, bindings := strings.Count(text, "kind: ValidatingAdmissionPolicy\n"), strings.Count(text, "kind: ValidatingAdmissionPolicyBinding\n")
		if err != nil || policies == 0 || policies != bindings || strings.Count(text, "---\n") != 2*policies || strings.Contains(text, "creationTimestamp") || strings.Contains(text, "status:") {
			t.Errorf("%v\n%s", err, text)
		}
		for mode, want := range map[string]fence.Mode{"": fence.Warn, "audit": fence.Audit} {
			if all, err := (Config{File: name, Mode: mode}).Declarations(); err != nil || all[0].Mode != want {
				t.Errorf("--mode=%s: %v, %+v", mode, err, all)
			}
		}
		if err := (Config{File: name}).Render(broken{}); err != errAway { //nolint:errorlint // it is not wrapped
			t.Errorf("output that cannot be written: %v", err)
		}
	}
}

// broken is a writer that fails.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errAway }

// sharedElection needs no revisions.
var sharedElection = configElections[:1]

// TestChart_Path checks the path in a printed helm command, which a user can run in any directory.
func TestChart_Path(t *testing.T) {
	root, err := filepath.Abs("../../..")
	harness.Must(t, err)
	tags := filepath.Join("deploy", "charts", "tags")
	for folder, want := range map[string]string{root: filepath.Join(root, tags), t.TempDir(): tags} {
		t.Chdir(folder)
		if got := Chart("tags"); got != want {
			t.Errorf("in %s: %s, want %s", folder, got, want)
		}
	}
}
