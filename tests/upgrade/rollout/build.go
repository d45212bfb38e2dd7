package rollout

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	o.Pilot, o.Dataplane, o.Helm, o.Charts = in("pilot"), in("dataplane"), in("helm"), filepath.Join(root, "deploy", "charts")
	if err := build(ctx, root, "-o", folder, "./cmd/pilot", "./tests/cluster/dataplane"); err != nil {
		return err
	}
	return build(ctx, filepath.Join(root, "tools", "helm"), "-buildvcs=false", "-o", o.Helm, ".")
}

// BuildElectionctl builds electionctl of a checkout into a folder. It links the charts there, because the commands that electionctl
// prints have paths below the root of the repository.
func (o *Options) BuildElectionctl(ctx context.Context, root, folder string) error {
	if err := build(ctx, filepath.Join(root, "electionctl"), "-buildvcs=false", "-o", filepath.Join(folder, "electionctl"), "."); err != nil {
		return err
	}
	err := os.Symlink(filepath.Dir(o.Charts), filepath.Join(folder, "deploy"))
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// build runs go build in the folder of a module. The programs need no debug information.
func build(ctx context.Context, module string, args ...string) error {
	command := exec.CommandContext(ctx, "go", append([]string{"-C", module, "build", "-trimpath", "-ldflags=-w"}, args...)...)
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", command.Args, err, said)
	}
	return nil
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
