package rollout

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Build builds the programs of a checkout into a folder, and sets Pilot, Dataplane, Helm and Charts.
func (o *Options) Build(ctx context.Context, root, folder string) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	if folder, err = filepath.Abs(folder); err != nil {
		return err
	}
	in := func(name string) string { return filepath.Join(folder, name) }
	for _, args := range [][]string{
		{"-C", root, "build", "-trimpath", "-o", folder, "./cmd/pilot", "./tests/cluster/dataplane"},
		{"-C", filepath.Join(root, "tools", "helm"), "build", "-trimpath", "-buildvcs=false", "-o", in("helm"), "."},
	} {
		build := exec.CommandContext(ctx, "go", args...)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if said, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("go %v: %w\n%s", args, err, said)
		}
	}
	o.Pilot, o.Dataplane, o.Helm, o.Charts = in("pilot"), in("dataplane"), in("helm"), filepath.Join(root, "deploy", "charts")
	return nil
}
