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
const limit = time.Minute

// Helm is the program, for one namespace of a cluster.
type Helm struct {
	Program, Namespace, Kubeconfig string
	// Home is the folder for what it keeps of itself: nothing of the user's is read or written.
	Home string
}

// Run runs it, and returns what it has said.
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
