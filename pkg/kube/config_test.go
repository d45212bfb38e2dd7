package kube

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// advice is the advice of errors without a flag.
var advice = Source{}.advice()

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://example.test:6443"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: one, context: {cluster: c, user: u}}, {name: broken, context: {cluster: none, user: u}}]
current-context: one
`

func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "config")
	harness.Must(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func TestLoadConfig(t *testing.T) {
	good := write(t, kubeconfig)
	missing := filepath.Join(t.TempDir(), "missing")
	list := string(filepath.ListSeparator)
	for name, from := range map[string]Source{
		"path":                 {Path: good},
		"path before list":     {Path: good, List: missing},
		"list with a gap":      {List: missing + list + list + good},
		"context named by one": {Path: good, Context: "one"},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := LoadConfig(from)
			harness.Must(t, err)
			if config.Host != "https://example.test:6443" || config.BearerToken != "t" {
				t.Errorf("got %v", config)
			}
		})
	}
}

func TestLoadConfig_Errors(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	good := write(t, kubeconfig)
	garbage := write(t, "{")
	empty := write(t, "")
	gone := write(t, strings.ReplaceAll(kubeconfig, "name: one", "name: other"))
	none := write(t, strings.ReplaceAll(kubeconfig, "current-context: one", ""))
	missing := filepath.Join(t.TempDir(), "missing")
	for name, test := range map[string]struct {
		from  Source
		wants []string
	}{
		"missing":                           {Source{Path: missing}, []string{"read kubeconfig " + missing + ": no such file or directory; ", advice}},
		"missing, by another flag":          {Source{Path: missing, Flag: "--other"}, []string{"read kubeconfig " + missing, "; set --other=FILE"}},
		"directory":                         {Source{Path: filepath.Dir(good)}, []string{filepath.Dir(good), "directory", advice}},
		"garbage":                           {Source{Path: garbage}, []string{garbage, advice}},
		"empty":                             {Source{Path: empty}, []string{empty, "no cluster", advice}},
		"nothing, in a program with a flag": {Source{Flag: "--other"}, []string{"not in a pod; set --other=FILE or KUBECONFIG, or run in a pod"}},
		"list of missing":                   {Source{List: missing}, []string{"none of the files of KUBECONFIG=" + missing + " exists: no such file", advice}},
		"directory in list":                 {Source{List: good + string(filepath.ListSeparator) + filepath.Dir(good)}, []string{filepath.Dir(good) + " of KUBECONFIG: it is a directory", advice}},
		"no context, but a context name":    {Source{Path: empty, Context: "two"}, []string{`no context "two"`}},
		"current context is gone":           {Source{Path: gone}, []string{gone + ` has no context "one"`, "get-contexts"}},
		"no current context":                {Source{Path: none}, []string{none + `, context ""`, advice}},
		"garbage in list":                   {Source{List: good + string(filepath.ListSeparator) + garbage}, []string{garbage, advice}},
		"no such context":                   {Source{Path: good, Context: "two"}, []string{good, `"two"`, "get-contexts"}},
		"broken context":                    {Source{Path: good, Context: "broken"}, []string{good, `"broken"`, advice}},
		"nothing at all":                    {Source{}, []string{"not in a pod", advice}},
		"empty list":                        {Source{List: string(filepath.ListSeparator)}, []string{"not in a pod", advice}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := LoadConfig(test.from)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.wants {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
		})
	}
}

func TestInCluster(t *testing.T) {
	want := &rest.Config{Host: "https://10.0.0.1"}
	if got, err := (Source{}).inCluster(func() (*rest.Config, error) { return want, nil }); err != nil || got != want {
		t.Errorf("%v, %v", got, err)
	}
	for cause, say := range map[error]string{
		fmt.Errorf("looking: %w", rest.ErrNotInCluster): "not in a pod; " + advice,
		errors.New("no token"):                          "service account of the pod: no token; " + advice,
	} {
		got, err := Source{}.inCluster(func() (*rest.Config, error) { return nil, cause })
		if got != nil || err == nil || !strings.HasSuffix(err.Error(), say) {
			t.Errorf("%v, %v; want %q", got, err, say)
		}
	}
}
