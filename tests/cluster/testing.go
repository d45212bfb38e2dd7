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

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pkg/kube"
)

// startShared starts the cluster of the test process at its first call. Main sets it.
var startShared func() (*Cluster, error)

// Main runs the tests of a package with one cluster, which Shared starts. It fails the package if a goroutine leaks. It
// ends the process, so call it last in TestMain.
func Main(m *testing.M, options Options) {
	var started *Cluster
	startShared = sync.OnceValues(func() (_ *Cluster, err error) {
		started, err = Start(context.Background(), options)
		return started, err
	})
	code := m.Run()
	var err error
	if started != nil {
		err = started.Stop()
	}
	if err := errors.Join(err, leaked()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// leaked reports the goroutines that do not end within about half a minute. On a busy machine, the goroutines of closed
// connections need longer than goleak waits.
func leaked() (err error) {
	for range 60 {
		if err = goleak.Find(); err == nil {
			return nil
		}
	}
	return err
}

// Shared returns the cluster of the package. The first call starts it. If the start fails, every test fails.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	if startShared == nil {
		t.Fatal("cluster.Shared needs a TestMain that calls cluster.Main")
	}
	c, err := startShared()
	harness.Must(t, err)
	return c
}

// Own starts a cluster that only one test uses. It stops after the test.
func Own(t testing.TB, options Options) *Cluster {
	t.Helper()
	c, err := Start(t.Context(), options)
	harness.Must(t, err)
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// notInNames matches characters that are not allowed in names.
var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// Namespace creates a namespace that is named after the test.
func (c *Cluster) Namespace(t testing.TB) string {
	t.Helper()
	prefix := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(t.Name()), "-"), "-")
	name, err := c.NewNamespace(t.Context(), strings.TrimRight(prefix[:min(len(prefix), 40)], "-"))
	harness.Must(t, err)
	return name
}

// Client returns an admin client.
func (c *Cluster) Client(t testing.TB) kube.Client {
	t.Helper()
	return ClientFor(t, c.Admin())
}

// ClientFor returns a client without a rate limit. Its connections are closed after the test.
func ClientFor(t testing.TB, config *rest.Config) kube.Client {
	t.Helper()
	client, err := connect(config)
	harness.Must(t, err)
	t.Cleanup(func() { kube.CloseIdleConnections(client) })
	return client
}
