package example

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/example"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/tests/cluster"
)

// client-go's example with the diff of docs/migration.md releases its lock when it is stopped. Without the last change of the diff
// it logs which function does not return, and the lock is not released.
func TestMigration_FromClientGo(t *testing.T) {
	t.Parallel()
	c := cluster.Shared(t)
	leases := c.Client(t).Kube().CoordinationV1().Leases(home)
	changes, err := example.Diff(filepath.Join(root, "docs", "migration.md"))
	harness.Must(t, err)
	module, err := cluster.ModuleFolder(t.Context(), root, "k8s.io/client-go")
	harness.Must(t, err)
	original, err := os.ReadFile(filepath.Join(module, "examples", "leader-election", "main.go"))
	harness.Must(t, err)
	for name, x := range map[string]struct {
		changes  []example.Hunk
		released bool
		logged   string // a warning names the function that has not returned
	}{
		"complete":    {changes, true, ""},
		"import-only": {changes[:1], false, "main.main.func"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source, err := example.Apply(string(original), x.changes)
			harness.Must(t, err)
			folder := t.TempDir()
			file := filepath.Join(folder, "main.go")
			harness.Must(t, os.WriteFile(file, []byte(source), 0o600))
			binary := filepath.Join(folder, "example")
			harness.Must(t, example.Build(t.Context(), root, file, binary, "-ldflags=-s -w"))
			holder := func() string {
				lease, err := leases.Get(t.Context(), name, metav1.GetOptions{})
				if err != nil && !apierrors.IsNotFound(err) {
					t.Fatal(err)
				}
				if err != nil {
					return ""
				}
				return k8sresourcelock.LeaseSnapshot(lease).Record.HolderIdentity
			}
			program := harness.Start(t, name, nil, binary, "-kubeconfig", c.Kubeconfig(), "-lease-lock-namespace", home, "-lease-lock-name", name, "-id", "me")
			harness.Until(t, "the run function has started", func() bool { return strings.Contains(program.Errors.String(), "Controller loop") })
			program.Signal(t, syscall.SIGTERM)
			if code := program.Exit(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
			if log := program.Errors.String(); (holder() == "") != x.released || !x.released && !strings.Contains(log, "have not returned") || !strings.Contains(log, x.logged) {
				t.Errorf("holder %q; log:\n%s", holder(), log)
			}
		})
	}
}
