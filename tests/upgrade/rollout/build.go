package rollout

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"incumbent.dev/incumbent/internal/testutil/example"
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
	o.Pilot, o.Dataplane, o.Helm, o.Charts = in("pilot"), in("dataplane"), in("helm"), filepath.Join(root, "deploy", "charts")
	return errors.Join(
		build(ctx, root, "./cmd/pilot", o.Pilot), build(ctx, root, "./tests/cluster/dataplane", o.Dataplane),
		build(ctx, filepath.Join(root, "tools", "helm"), ".", o.Helm, "-buildvcs=false"),
	)
}

// BuildElectionctl builds electionctl of a checkout into a folder. It links the charts there, because the commands that electionctl
// prints have paths below the root of the repository.
func (o *Options) BuildElectionctl(ctx context.Context, root, folder string) error {
	if err := build(ctx, filepath.Join(root, "electionctl"), ".", filepath.Join(folder, "electionctl"), "-buildvcs=false"); err != nil {
		return err
	}
	err := os.Symlink(filepath.Dir(o.Charts), filepath.Join(folder, "deploy"))
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// build builds a program of a module. It needs no debug information.
func build(ctx context.Context, module, what, program string, flags ...string) error {
	return example.Build(ctx, module, what, program, append(flags, "-trimpath", "-ldflags=-w")...)
}

// Shell returns a command that runs a line of bash in a folder. It finds the programs of that folder and kubectl.
func (r *Rollout) Shell(ctx context.Context, folder, line string) *exec.Cmd {
	shell := exec.CommandContext(ctx, "bash", "-ec", line)
	shell.Dir = folder
	shell.Env = []string{
		"PATH=" + folder + ":" + filepath.Dir(r.Cluster.Kubectl()) + ":" + os.Getenv("PATH"), "HOME=" + folder, "KUBECONFIG=" + r.Cluster.Kubeconfig(),
	}
	return shell
}
