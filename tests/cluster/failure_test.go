package cluster_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"incumbent.dev/incumbent/tests/cluster"
)

// fails starts a cluster that cannot start, and wants the words in the error, and nothing in
// the temporary folder.
func fails(t *testing.T, ctx context.Context, options cluster.Options, words ...string) error {
	t.Helper()
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	c, err := cluster.Start(ctx, options)
	if err == nil {
		t.Fatal("it started", c.Stop())
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("missing %q in: %v", word, err)
		}
	}
	left, globErr := filepath.Glob(filepath.Join(temporary, "*"))
	if globErr != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, globErr)
	}
	return err
}

func TestStart_MissingPrograms(t *testing.T) {
	empty := t.TempDir()
	fails(t, t.Context(), cluster.Options{Assets: empty}, "no etcd in "+empty, "make tools", "KUBEBUILDER_ASSETS")
	if err := os.WriteFile(filepath.Join(empty, "etcd"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	fails(t, t.Context(), cluster.Options{Assets: empty}, "is not a program")
}

func TestStart_ServerFails(t *testing.T) {
	fails(t, t.Context(), cluster.Options{APIServerArgs: []string{"--no-such-flag"}, WithoutControllers: true},
		"kube-apiserver ended unexpectedly", "exit status 1", "unknown flag: --no-such-flag")
}

func TestStart_Timeout(t *testing.T) {
	err := fails(t, t.Context(), cluster.Options{StartTimeout: time.Millisecond}, "start took longer than 1ms", "etcd is healthy")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("not DeadlineExceeded: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := fails(t, ctx, cluster.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("not Canceled: %v", err)
	}
}

func TestStart_InvalidOptions(t *testing.T) {
	fails(t, t.Context(), cluster.Options{StartTimeout: -time.Second}, "StartTimeout")
	fails(t, t.Context(), cluster.Options{External: "/no/such/file"}, "/no/such/file")
}

func TestStart_RemovesOldFolders(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	dead, living := filepath.Join(temporary, "incumbent-cluster-dead"), filepath.Join(temporary, "incumbent-cluster-living")
	for _, folder := range []string{dead, living} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// A new folder has no lock yet.
	if err := os.WriteFile(filepath.Join(dead, "lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	external := cluster.Options{External: cluster.Shared(t).Kubeconfig()}
	c, err := cluster.Start(t.Context(), external)
	if err != nil {
		t.Fatal(err)
	}
	// It does not delete the folder of a running process.
	other, err := cluster.Start(t.Context(), external)
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{c.Dir(), other.Dir()} {
		if _, err := os.Stat(folder); err != nil {
			t.Errorf("folder of a running process: %v", err)
		}
	}
	if err := errors.Join(c.Stop(), other.Stop()); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(temporary, "*"))
	if err != nil || len(left) != 1 || left[0] != living {
		t.Errorf("left are %v (%v)", left, err)
	}
}
