package helm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// limit bounds one run.
const limit = 2 * time.Minute

// Helm runs Helm for one namespace of a cluster.
type Helm struct {
	Program, Namespace, Kubeconfig string
	// Home is the folder of Helm's own files. The user's files are not used.
	Home string
}

// Run runs Helm and returns its output.
func (h Helm) Run(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %v", limit))
	defer cancel()
	command := exec.CommandContext(ctx, h.Program, append(args, "--namespace="+h.Namespace, "--kubeconfig="+h.Kubeconfig)...)
	command.Env = append(os.Environ(), "HELM_CACHE_HOME="+h.Home, "HELM_CONFIG_HOME="+h.Home, "HELM_DATA_HOME="+h.Home)
	var said bytes.Buffer
	command.Stdout, command.Stderr = &said, &said
	if err := command.Run(); err != nil {
		return said.String(), fmt.Errorf("helm %s: %w\n%s", strings.Join(args, " "), errors.Join(err, context.Cause(ctx)), strings.TrimSpace(said.String()))
	}
	return said.String(), nil
}
