package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pkg/kube"
)

// ExternalVariable names a kubeconfig: the packages that share a cluster then use that one (see
// Options.External) instead of starting one each.
const ExternalVariable = "INCUMBENT_TEST_CLUSTER"

// cleanTimeout bounds a request that cleans up after a test.
const cleanTimeout = 10 * time.Second

// shared is the test process's cluster: test packages are processes of their own.
var shared struct {
	mu      sync.Mutex
	main    bool
	options Options
	cluster *Cluster
	err     error
}

// Main runs a package's tests with a cluster for all of them, which starts when one asks
// for it (Shared), and fails the package when goroutines are left. It ends the process,
// so it comes last in TestMain.
func Main(m *testing.M, options Options) {
	if there := os.Getenv(ExternalVariable); there != "" {
		options.External = there
	}
	shared.mu.Lock()
	shared.main, shared.options = true, options
	shared.mu.Unlock()
	code := m.Run()
	if err := endShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// endShared stops the cluster, and reports what it or a test left running. Connections to an
// external cluster stay open, which is no leak of the tests.
func endShared() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	var ignored []goleak.Option
	if shared.options.External != "" {
		ignored = append(ignored,
			goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
			goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
			goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*clientConnReadLoop).run"),
			goleak.IgnoreAnyFunction("net/http.(*http2clientConnReadLoop).run"),
		)
	}
	var err error
	if shared.cluster != nil {
		err = shared.cluster.Stop()
	}
	return errors.Join(err, goleak.Find(ignored...))
}

// Shared is the package's cluster. The first call starts it; a start that failed fails every
// test that asks.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.main {
		t.Fatal("cluster.Shared needs a TestMain that calls cluster.Main")
	}
	if shared.cluster == nil && shared.err == nil {
		shared.cluster, shared.err = Start(t.Context(), shared.options)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}

// notInNames is what a namespace's name cannot hold.
var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// Namespace is a fresh namespace, named after the test. It stays until the cluster ends; in an
// external cluster it is deleted after the test.
func (c *Cluster) Namespace(t testing.TB) string {
	t.Helper()
	prefix := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(t.Name()), "-"), "-")
	name, err := c.NewNamespace(t.Context(), strings.TrimRight(prefix[:min(len(prefix), 40)], "-"))
	if err != nil {
		t.Fatal(err)
	}
	if c.External() {
		t.Cleanup(func() {
			// The test's own context has ended by now.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cleanTimeout)
			defer cancel()
			if err := c.DeleteNamespace(ctx, name); err != nil {
				t.Error(err)
			}
		})
	}
	return name
}

// Identity is NewIdentity for tests.
func (c *Cluster) Identity(t testing.TB, options IdentityOptions) *rest.Config {
	t.Helper()
	config, err := c.NewIdentity(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// Client is an administrator's, for a test as ClientFor's.
func (c *Cluster) Client(t testing.TB) kube.Client {
	t.Helper()
	return ClientFor(t, c.Admin())
}

// ClientFor makes a client of which nothing limits the requests, and whose connections close with the test.
func ClientFor(t testing.TB, config *rest.Config) kube.Client {
	t.Helper()
	client, err := kube.NewClient(config, kube.WithRateLimit(-1, 0), kube.WithOwnConnections())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kube.CloseIdleConnections(client) })
	return client
}
