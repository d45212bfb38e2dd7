package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/tests/cluster/internal/loopback"
	"incumbent.dev/incumbent/tests/cluster/internal/process"
)

// Without a variable the servers are those of the repository, from wherever in it, and outside of it there are none.
func TestWhereTheServersAre(t *testing.T) {
	const ours, other = "module incumbent.dev/incumbent\n\ngo 1.26\n", "module incumbent.dev/incumbent/electionctl\n"
	for name, x := range map[string]struct {
		root, below string // what go.mod says there; "": there is none
		found       bool
	}{
		"no module":         {"", "", false},
		"another module":    {other, "", false},
		"the repository":    {ours, "", true},
		"a module below it": {ours, other, true},
	} {
		t.Run(name, func(t *testing.T) {
			root, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			below := filepath.Join(root, "a", "b")
			if err := os.MkdirAll(below, 0o700); err != nil {
				t.Fatal(err)
			}
			for folder, text := range map[string]string{root: x.root, filepath.Dir(below): x.below} {
				if text == "" {
					continue
				}
				if err := os.WriteFile(filepath.Join(folder, "go.mod"), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want := ""
			if x.found {
				want = filepath.Join(root, "bin")
			}
			t.Chdir(below)
			got, err := ownAssets()
			if got != want || (err == nil) != x.found || err != nil && !strings.Contains(err.Error(), "set "+assetsVariable+", or run inside the repository") {
				t.Errorf("%q, %v, want %q", got, err, want)
			}
		})
	}
}

// clusterOf is a cluster with all that needs no server, whose programs are not there; etcd is one that does nothing.
func clusterOf(t *testing.T) *Cluster {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	c := &Cluster{assets: "/none", options: Options{Audit: true}}
	var err error
	if c.folder, err = newFolder(); err != nil {
		t.Fatal(err)
	}
	if c.block, err = loopback.Reserve(); err != nil {
		t.Fatal(err)
	}
	if c.etcd, err = process.Start(process.Spec{Name: "etcd", Path: "/bin/sh", Args: []string{"-c", "exec sleep 60"}, Log: c.folder.file("etcd.log")}); err != nil {
		t.Fatal(err)
	}
	if c.authority, err = newAuthority(); err != nil {
		t.Fatal(err)
	}
	if c.api, err = c.newAPIServer(1); err != nil {
		t.Fatal(err)
	}
	return c
}

// A further API server is the cluster's from its start on, however that ends; what was stopped can be asked all the same.
func TestWhichServersAClusterHas(t *testing.T) {
	c := clusterOf(t)
	s, err := c.AddAPIServer(t.Context())
	if err == nil || !strings.Contains(err.Error(), "starting kube-apiserver-2: ") || s == nil {
		t.Fatalf("%v, %v", s, err)
	}
	want := []string{c.folder.file("kube-apiserver-audit.log"), c.folder.file("kube-apiserver-2-audit.log")}
	for range 2 {
		if got := c.AuditLogs(); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for n := 3; n <= maxAPIServers+1; n++ {
		if _, err = c.AddAPIServer(t.Context()); (n > maxAPIServers) != strings.Contains(fmt.Sprint(err), "at most 4") {
			t.Errorf("number %d: %v", n, err)
		}
	}
	for what, err := range map[string]error{"pausing": s.Pause(), "resuming": s.Resume()} {
		if err == nil || !strings.Contains(err.Error(), "kube-apiserver-2 is not running") {
			t.Errorf("%s: %v", what, err)
		}
	}
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.api.Start(late); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "starting kube-apiserver: ") {
		t.Errorf("started too late: %v", err)
	}
	path := c.folder.path
	for range 2 {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) || len(c.AuditLogs()) != maxAPIServers || c.block.Release() == nil {
		t.Errorf("after its end: %v, %q", err, c.AuditLogs())
	}
}

// A wait ends with the answer, with the server or with the context, and says what was awaited.
func TestWhoIsHealthyInTheEnd(t *testing.T) {
	running := func(script string) *process.Process {
		t.Helper()
		p, err := process.Start(process.Spec{Name: "the script", Path: "/bin/sh", Args: []string{"-c", script}, Log: filepath.Join(t.TempDir(), "log")})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := p.Kill(); err != nil {
				t.Error(err)
			}
		})
		return p
	}
	hangs := running("exec sleep 60")
	errBusy, errOver, asked := errors.New("busy"), errors.New("over"), 0
	answer := func(ctx context.Context) error {
		if until, bounded := ctx.Deadline(); !bounded || time.Until(until) > 2*time.Second {
			t.Errorf("one question may take until %v", until)
		}
		if asked++; asked == 3 {
			return nil
		}
		return errBusy
	}
	if err := await(t.Context(), "it is so", hangs, answer); err != nil || asked != 3 {
		t.Errorf("%v, after %d questions", err, asked)
	}
	never := func(context.Context) error { return errBusy }
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errOver)
	if err := await(ctx, "it is so", hangs, never); !errors.Is(err, errOver) || !errors.Is(err, errBusy) || !strings.Contains(err.Error(), "waiting until it is so: ") || !strings.Contains(err.Error(), "it wrote nothing to") {
		t.Errorf("%v", err)
	}
	if err := await(t.Context(), "it is so", running("echo broken; exit 3"), never); err == nil || !strings.Contains(err.Error(), "waiting until it is so: the script ended by itself") || !strings.Contains(err.Error(), "broken") {
		t.Errorf("%v", err)
	}
}

// What a cluster cannot ask is said, with what it was for.
func TestWhatIsAskedOfNobody(t *testing.T) {
	folder := t.TempDir()
	c := &Cluster{admin: &rest.Config{Host: "http://127.0.0.1:1", QPS: -1}}
	if err := c.LoadDefinitions(t.Context(), folder); err == nil || !strings.Contains(err.Error(), "reading resource definitions: there are none in ") {
		t.Errorf("nothing to install: %v", err)
	}
	if err := c.DeleteNamespace(t.Context(), "apps"); err == nil || !strings.Contains(err.Error(), "deleting namespace apps: ") {
		t.Error(err)
	}
	if _, err := c.NewNamespace(t.Context(), "apps"); err == nil || !strings.Contains(err.Error(), "creating a namespace apps-…: ") {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "a.yaml"), []byte("kind: CustomResourceDefinition\nmetadata: {name: a}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.LoadDefinitions(t.Context(), folder); err == nil || !strings.Contains(err.Error(), "installing a: ") {
		t.Error(err)
	}
	for text, config := range map[string]*rest.Config{
		"making the cluster's own client: unable": {Host: "https://127.0.0.1:1", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("none")}},
		"making the cluster's own client: ":       {Host: "http://127.0.0.1:1", QPS: 1},
	} {
		c.admin = config
		if err := c.LoadDefinitions(t.Context(), folder); config.QPS == 0 && (err == nil || !strings.Contains(err.Error(), text)) {
			t.Errorf("%v, want %q", err, text)
		}
		for _, err := range []error{c.DeleteNamespace(t.Context(), "apps"), second(c.NewNamespace(t.Context(), "apps"))} {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%v, want %q", err, text)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(folder, "b.yaml"), []byte("a: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.LoadDefinitions(t.Context(), folder); err == nil || !strings.Contains(err.Error(), "reading resource definitions: ") {
		t.Error(err)
	}
}

func second(_ string, err error) error { return err }
