package cluster

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/tests/cluster/internal/process"
)

const (
	apiServerPort = 6443
	// serviceIssuer is who signs service account tokens, and whom they are for.
	serviceIssuer = "https://kubernetes.default.svc"
	// apiServerGrace is how long an API server has to end. It waits for open watches
	// to finish, which do not.
	apiServerGrace = 2 * time.Second
)

// APIServer is one API server of a cluster. Its methods may be called from several
// goroutines.
type APIServer struct {
	cluster *Cluster
	name    string
	address string
	admin   *rest.Config

	mu      sync.Mutex
	process *process.Process // the present one, or the last
	further []string         // its arguments beside ours
}

// newAPIServer is the n-th API server of the cluster, not started.
func (c *Cluster) newAPIServer(n int) (*APIServer, error) {
	address, err := c.block.Address(n)
	if err != nil {
		return nil, err
	}
	name := apiServerProgram
	if n > 1 {
		name = fmt.Sprintf("%s-%d", apiServerProgram, n)
	}
	s := &APIServer{cluster: c, name: name, address: address, further: c.options.APIServerArgs}
	s.admin, err = c.certified(s.URL(), "admin", "system:masters")
	return s, err
}

// certified is the configuration of a user with a client certificate.
func (c *Cluster) certified(url, user string, groups ...string) (*rest.Config, error) {
	pair, err := c.authority.client(user, groups...)
	if err != nil {
		return nil, err
	}
	return unlimited(&rest.Config{
		Host:            url,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.authority.PEM, CertData: pair.Cert, KeyData: pair.Key},
	}), nil
}

// SetArgs has other arguments than Options.APIServerArgs count from the next Start on.
func (s *APIServer) SetArgs(args ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.further = args
}

// URL is where it serves.
func (s *APIServer) URL() string { return fmt.Sprintf("https://%s:%d", s.address, apiServerPort) }

// Admin is a client configuration for this API server that may do everything, without a rate
// limit of its own. The caller owns it.
func (s *APIServer) Admin() *rest.Config { return rest.CopyConfig(s.admin) }

// Start starts the API server, after Stop or Kill, and waits until it is ready. It serves on
// the same address as before.
func (s *APIServer) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running() {
		return fmt.Errorf("starting %s: it is running", s.name)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("starting %s: %w", s.name, err)
	}
	started, err := process.Start(process.Spec{
		Name: s.name,
		Path: filepath.Join(s.cluster.assets, apiServerProgram),
		Args: s.arguments(),
		Env:  serverEnvironment(),
		Dir:  s.cluster.folder.path,
		Log:  s.cluster.folder.file(s.name + ".log"),
		// etcd outlives it, whatever happens to us.
		Needs: []*process.Process{s.cluster.etcd},
	})
	if err != nil {
		return err
	}
	s.process = started
	return s.awaitReady(ctx)
}

// awaitReady asks with a connection of its own: none is left open.
func (s *APIServer) awaitReady(ctx context.Context) error {
	config, err := rest.TLSConfigFor(s.admin)
	if err != nil {
		return fmt.Errorf("the admin's TLS configuration: %w", err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	defer client.CloseIdleConnections()
	return await(ctx, s.name+" is ready", s.process, healthy(client, s.URL()+"/readyz"))
}

// Pause stops the process where it is (SIGSTOP): connections stay open, and no answer
// comes. It has stopped when Pause returns. Resume lets it go on.
func (s *APIServer) Pause() error { return s.signal(syscall.SIGSTOP) }

// Resume lets a paused API server go on.
func (s *APIServer) Resume() error { return s.signal(syscall.SIGCONT) }

// Kill ends the API server at once, as a crash would.
func (s *APIServer) Kill() error { return s.end((*process.Process).Kill) }

// Stop ends the API server in order, and by force if it has not ended after two seconds: it
// waits for open watches, which have no end. Stopping a stopped one is harmless.
func (s *APIServer) Stop() error {
	return s.end(func(p *process.Process) error { return p.Stop(apiServerGrace) })
}

func (s *APIServer) end(how func(*process.Process) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return nil
	}
	return how(s.process)
}

func (s *APIServer) signal(signal syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running() {
		return fmt.Errorf("%s is not running: cannot send %v", s.name, signal)
	}
	return s.process.Signal(signal)
}

func (s *APIServer) running() bool { return s.process != nil && s.process.State() == nil }

// arguments puts the command line together.
func (s *APIServer) arguments() []string {
	c := s.cluster
	args := []string{
		"--bind-address=" + s.address,
		fmt.Sprintf("--secure-port=%d", apiServerPort),
		// The API refuses loopback addresses as endpoints of the service "kubernetes", so
		// nobody writes them; the advertised address is then only a flag that must be set.
		"--advertise-address=" + s.address,
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.96.0.0/24",
		"--etcd-servers=" + c.etcdURL,
		"--cert-dir=" + c.folder.path,
		"--tls-cert-file=" + c.folder.file(servingCert),
		"--tls-private-key-file=" + c.folder.file(servingKey),
		"--client-ca-file=" + c.folder.file(caFile),
		// Who it is to the node, which serves logs.
		"--kubelet-client-certificate=" + c.folder.file(kubeletCert),
		"--kubelet-client-key=" + c.folder.file(kubeletKey),
		"--kubelet-preferred-address-types=InternalIP",
		"--authorization-mode=RBAC",
		"--service-account-issuer=" + serviceIssuer,
		"--service-account-key-file=" + c.folder.file(tokenKey),
		"--service-account-signing-key-file=" + c.folder.file(tokenKey),
		// Tokens end when they say, not a year later.
		"--service-account-extend-token-expiration=false",
	}
	if c.options.Audit {
		args = append(args,
			"--audit-policy-file="+c.folder.file(auditPolicy),
			"--audit-log-path="+s.auditLog(),
			"--audit-log-mode=blocking",
			// Its default begins another file after 100 MB, and nobody would read the first.
			"--audit-log-maxsize=0",
		)
	}
	return append(args, s.further...)
}

// auditLog is where this API server writes what it was asked.
func (s *APIServer) auditLog() string { return s.cluster.folder.file(s.name + "-audit.log") }
