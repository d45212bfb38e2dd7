package kube

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
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
			if err != nil {
				t.Fatal(err)
			}
			if config.Host != "https://example.test:6443" || config.BearerToken != "t" {
				t.Errorf("got %v", config)
			}
		})
	}
}

func TestLoadConfigErrorsNameTheFileAndTheWayOut(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	good := write(t, kubeconfig)
	garbage := write(t, "{")
	empty := write(t, "")
	missing := filepath.Join(t.TempDir(), "missing")
	for name, test := range map[string]struct {
		from  Source
		wants []string
	}{
		"missing":         {Source{Path: missing}, []string{missing, "no such file", wayOut}},
		"folder":          {Source{Path: filepath.Dir(good)}, []string{filepath.Dir(good), "folder", wayOut}},
		"garbage":         {Source{Path: garbage}, []string{garbage, wayOut}},
		"empty":           {Source{Path: empty}, []string{empty, "no cluster", wayOut}},
		"list of missing": {Source{List: missing}, []string{missing, "KUBECONFIG", wayOut}},
		"garbage in list": {Source{List: good + string(filepath.ListSeparator) + garbage}, []string{garbage, wayOut}},
		"no such context": {Source{Path: good, Context: "two"}, []string{good, `"two"`, "get-contexts"}},
		"broken context":  {Source{Path: good, Context: "broken"}, []string{good, `"broken"`, wayOut}},
		"nothing at all":  {Source{}, []string{"not a cluster's pod", wayOut}},
		"empty list":      {Source{List: string(filepath.ListSeparator)}, []string{"not a cluster's pod", wayOut}},
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
