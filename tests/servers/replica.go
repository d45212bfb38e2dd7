package servers

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/testutil/access"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/tests/cluster"
)

// Replica is a running server.
type Replica struct {
	*bootstrap.Server
	// Log is the log of the server. Sent has its requests.
	Log, Sent *harness.Log
	// End stops the server and waits until it has ended.
	End func()
}

// Identity returns the identity of a pod with the permissions of the chart.
func Identity(t testing.TB, c *cluster.Cluster, config bootstrap.Config, pod, account string) *rest.Config {
	t.Helper()
	trial := "defaults"
	if config.Disabled {
		trial = "one node"
	}
	rules := access.Of(t, trial, config.Namespace, cmp.Or(config.Revision, "default"))
	return c.Identity(t, cluster.IdentityOptions{
		Namespace: config.Namespace, PodName: pod, ServiceAccount: account,
		Rules: rules.Namespace, ClusterRules: rules.Cluster,
	})
}

// Run runs a server until End is called or the test ends.
func Run(t testing.TB, config bootstrap.Config) *Replica {
	t.Helper()
	r := &Replica{Log: &harness.Log{}, Sent: &harness.Log{}}
	config.RESTConfig = rest.CopyConfig(config.RESTConfig)
	config.RESTConfig.Wrap(harness.Requests(r.Sent))
	config.Logger = slog.New(slog.NewTextHandler(r.Log, nil))
	var err error
	if r.Server, err = bootstrap.New(config); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- r.Server.Run(ctx) }()
	r.End = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("server %s: %v", config.Identity, err)
			}
		case <-time.After(harness.Patience):
			t.Errorf("server %s runs %v after its stop", config.Identity, harness.Patience)
		}
	})
	t.Cleanup(func() {
		r.End()
		if t.Failed() {
			t.Logf("%s logged:\n%s", config.Identity, r.Log)
		}
	})
	return r
}

// Metric returns the value of a sample, or "".
func (r *Replica) Metric(t testing.TB, sample string) string {
	t.Helper()
	return harness.Metric(t, r.Address(), sample)
}

// Elections returns all elections of the server. It returns none if they are not served yet.
func (r *Replica) Elections(t testing.TB) (all []inspect.Election) {
	t.Helper()
	_, text := harness.Page(t, r.Address(), "/debug/elections")
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return all
}
