package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/tests/cluster/internal/loopback"
	"incumbent.dev/incumbent/tests/cluster/internal/process"
)

// startTimeout limits a start, in case a server hangs. It is long, because a busy machine is not a failure. A server that
// ends is reported immediately.
const startTimeout = 5 * time.Minute

// Cluster is a started control plane.
type Cluster struct {
	options Options
	assets  string
	folder  *folder
	admin   *rest.Config

	authority   authority
	block       *loopback.Pool
	address     string // of etcd and the API server
	etcd        *process.Process
	etcdURL     string
	api         *APIServer
	controllers *process.Process

	stop    sync.Once
	stopErr error
}

// Start starts a cluster and waits until the API server is ready and the controllers work. ctx limits the
// start only. A failed start leaves nothing behind, and its error contains the end of the server's log.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	options = options.withDefaults()
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("start took longer than %v: %w", startTimeout, context.DeadlineExceeded))
	defer cancel()
	c := &Cluster{options: options}
	if err := c.begin(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start cluster: %w", err), c.Stop())
	}
	return c, nil
}

// begin starts the servers one after the other.
func (c *Cluster) begin(ctx context.Context) error {
	if err := c.prepare(); err != nil {
		return err
	}
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	if err := c.api.Start(ctx); err != nil {
		return err
	}
	if c.options.WithoutControllers {
		return nil
	}
	return c.startControllers(ctx)
}

// prepare creates addresses, keys and files.
func (c *Cluster) prepare() error {
	programs := []string{etcdProgram, apiServerProgram}
	if !c.options.WithoutControllers {
		programs = append(programs, controllerManagerProgram)
	}
	var err error
	if c.assets, err = assets(programs...); err != nil {
		return err
	}
	if c.folder, err = newFolder(); err != nil {
		return err
	}
	if c.block, err = loopback.NewPool(); err != nil {
		return err
	}
	if c.authority, err = newAuthority(); err != nil {
		return err
	}
	if c.address, err = c.block.Take(); err != nil {
		return err
	}
	if err := c.authority.writeKeys(c.folder.path, c.address); err != nil {
		return err
	}
	if err := os.WriteFile(c.folder.file(auditPolicy), []byte(c.options.AuditPolicy), 0o600); err != nil {
		return fmt.Errorf("write audit policy: %w", err)
	}
	if c.api, err = c.newAPIServer(); err != nil {
		return err
	}
	c.admin = c.api.Admin()
	return WriteKubeconfig(c.Kubeconfig(), c.admin, "")
}

// Admin returns a client configuration with all permissions and without a rate limit. The caller may change it.
func (c *Cluster) Admin() *rest.Config { return rest.CopyConfig(c.admin) }

// URL returns the URL of the API server.
func (c *Cluster) URL() string { return c.admin.Host }

// Kubeconfig returns the path of the admin's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.folder.file(adminConfig) }

// Dir returns the temporary folder of the cluster, with the logs of the servers. Stop deletes it.
func (c *Cluster) Dir() string { return c.folder.path }

// Kubectl returns the path of kubectl: in the folder of the API server if it exists, else in PATH.
func (c *Cluster) Kubectl() string {
	const program = "kubectl"
	own := filepath.Join(c.assets, program)
	if _, err := os.Stat(own); err == nil {
		return own
	}
	return program
}

// AuditLog returns the path of the audit log, with one JSON object per request. It is empty without Options.Audit.
func (c *Cluster) AuditLog() string {
	if !c.options.Audit {
		return ""
	}
	return c.api.auditLog()
}

// APIServer returns the API server.
func (c *Cluster) APIServer() *APIServer { return c.api }

// Stop stops the servers and deletes the folder, usually within a second. It may be called twice.
func (c *Cluster) Stop() error {
	c.stop.Do(func() { c.stopErr = c.end() })
	return c.stopErr
}

func (c *Cluster) end() error {
	var errs []error
	if c.controllers != nil {
		errs = append(errs, c.controllers.Stop(controllersGrace))
	}
	if c.api != nil {
		errs = append(errs, c.api.Stop())
	}
	if c.etcd != nil {
		errs = append(errs, c.etcd.Stop(etcdGrace))
	}
	if c.block != nil {
		errs = append(errs, c.block.Release())
	}
	if c.folder != nil {
		errs = append(errs, c.folder.remove())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop cluster: %w", err)
	}
	return nil
}

// run starts a program of the cluster.
func (c *Cluster) run(program string, args []string) (*process.Process, error) {
	return process.Start(process.Spec{
		Name: program, Path: filepath.Join(c.assets, program), Args: args, Env: serverEnvironment(),
		Dir: c.folder.path, Log: c.folder.file(program + ".log"),
	})
}

// serverEnvironment returns the environment of this process without the variables that would affect the servers.
func serverEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return strings.HasPrefix(entry, "KUBECONFIG=") || strings.HasPrefix(entry, "ETCD_")
	})
}
