package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

func TestNewFolder_DeletesOldFolders(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	dead, starting := filepath.Join(temporary, "incumbent-cluster-dead"), filepath.Join(temporary, "starting-incumbent-cluster-new")
	for _, folder := range []string{dead, starting} {
		harness.Must(t, os.Mkdir(folder, 0o700))
	}
	kept := []string{starting} // it is not locked yet
	for range 2 {              // the second one keeps the first one, which is locked
		f, err := newFolder()
		harness.Must(t, err)
		defer func() {
			if err := f.remove(); err != nil {
				t.Error(err)
			}
		}()
		kept = append(kept, f.path)
	}
	left, err := filepath.Glob(filepath.Join(temporary, "*"))
	slices.Sort(kept)
	if err != nil || !slices.Equal(left, kept) {
		t.Errorf("left are %v (%v), want %v", left, err, kept)
	}
}
