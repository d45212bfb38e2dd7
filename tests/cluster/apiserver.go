package cluster

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/tests/cluster/internal/process"
)

const (
	apiServerPort = 6443
	// serviceIssuer is the issuer and the audience of service account tokens.
	serviceIssuer = "https://kubernetes.default.svc"
	// apiServerGrace limits the shutdown of an API server, which waits for open watches.
	apiServerGrace = 2 * time.Second
)

// APIServer is the API server of a cluster. Its methods are safe for concurrent use.
type APIServer struct {
	cluster *Cluster
	admin   *rest.Config

	mu      sync.Mutex
	process *process.Process // the current or the last process
}

// newAPIServer does not start it.
func (c *Cluster) newAPIServer() (*APIServer, error) {
	s := &APIServer{cluster: c}
	var err error
	s.admin, err = c.certified(s.URL(), "admin", "system:masters")
	return s, err
}

// certified returns the configuration of a user with a client certificate.
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

// URL returns the URL of the API server.
func (s *APIServer) URL() string {
	return fmt.Sprintf("https://%s:%d", s.cluster.address, apiServerPort)
}

// Admin returns a client configuration with all permissions and without a rate limit. The caller may change it.
func (s *APIServer) Admin() *rest.Config { return rest.CopyConfig(s.admin) }

// Start starts the API server after Stop or Kill, and waits until it is ready. The address does not change.
func (s *APIServer) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running() {
		return fmt.Errorf("start %s: it is running", apiServerProgram)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("starting %s: %w", apiServerProgram, err)
	}
	started, err := s.cluster.run(apiServerProgram, s.arguments())
	if err != nil {
		return err
	}
	s.process = started
	return s.awaitReady(ctx)
}

// awaitReady uses its own connection and closes it.
func (s *APIServer) awaitReady(ctx context.Context) error {
	config, err := rest.TLSConfigFor(s.admin)
	if err != nil {
		return fmt.Errorf("get TLS configuration of admin: %w", err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	defer client.CloseIdleConnections()
	return await(ctx, apiServerProgram+" is ready", s.process, Healthy(client, s.URL()+"/readyz"))
}

// await waits until the running API server answers without an error.
func (s *APIServer) await(ctx context.Context, what string, ask func(context.Context) error) error {
	s.mu.Lock()
	running := s.process
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return await(ctx, what, running, ask)
}

// Kill ends the API server like a crash.
func (s *APIServer) Kill() error { return s.end((*process.Process).Kill) }

// Stop stops the API server, after two seconds with SIGKILL, because it waits for open watches. It may be called twice.
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

func (s *APIServer) running() bool { return s.process != nil && s.process.State() == nil }

// arguments returns the command line.
func (s *APIServer) arguments() []string {
	c := s.cluster
	args := []string{
		"--bind-address=" + c.address,
		fmt.Sprintf("--secure-port=%d", apiServerPort),
		// The API rejects loopback addresses as endpoints of the service "kubernetes", so this flag has no other
		// effect.
		"--advertise-address=" + c.address,
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.96.0.0/24",
		"--etcd-servers=" + c.etcdURL,
		"--cert-dir=" + c.folder.path,
		"--tls-cert-file=" + c.folder.file(servingCert),
		"--tls-private-key-file=" + c.folder.file(servingKey),
		"--client-ca-file=" + c.folder.file(caFile),
		// The client certificate for the node, which serves logs.
		"--kubelet-client-certificate=" + c.folder.file(kubeletCert),
		"--kubelet-client-key=" + c.folder.file(kubeletKey),
		"--kubelet-preferred-address-types=InternalIP",
		"--authorization-mode=RBAC",
		"--service-account-issuer=" + serviceIssuer,
		"--service-account-key-file=" + c.folder.file(tokenKey),
		"--service-account-signing-key-file=" + c.folder.file(tokenKey),
		// Tokens expire as requested, not a year later.
		"--service-account-extend-token-expiration=false",
	}
	if c.options.Audit {
		args = append(args,
			"--audit-policy-file="+c.folder.file(auditPolicy),
			"--audit-log-path="+s.auditLog(),
			"--audit-log-mode=blocking",
			// The default rotates the file after 100 MB, and only the last file is read.
			"--audit-log-maxsize=0",
		)
	}
	return append(args, c.options.APIServerArgs...)
}

// auditLog returns the path of the audit log.
func (s *APIServer) auditLog() string { return s.cluster.folder.file(apiServerProgram + "-audit.log") }
