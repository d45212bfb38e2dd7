package cluster_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/harness"
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
	t.Setenv("KUBEBUILDER_ASSETS", empty)
	fails(t, t.Context(), cluster.Options{}, filepath.Join(empty, "etcd"), "no such file", "make tools", "KUBEBUILDER_ASSETS")
	harness.Must(t, os.WriteFile(filepath.Join(empty, "etcd"), []byte("text"), 0o600))
	fails(t, t.Context(), cluster.Options{}, "permission denied")
}

func TestStart_ServerFails(t *testing.T) {
	fails(t, t.Context(), cluster.Options{APIServerArgs: []string{"--no-such-flag"}, WithoutControllers: true},
		"kube-apiserver ended unexpectedly", "exit status 1", "unknown flag: --no-such-flag")
}

func TestStart_Timeout(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := fails(t, ctx, cluster.Options{}, "etcd is healthy"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("not DeadlineExceeded: %v", err)
	}
}
