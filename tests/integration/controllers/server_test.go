package controllers

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/servers"
)

type replica = servers.Replica

// oneElection disables all controllers except the namespace controller.
var oneElection = bootstrap.Config{IngressMode: "OFF", DisableGatewayAPI: true}

// serve runs a server with a lease that is too long to expire in a test. change can modify its configuration.
func serve(t *testing.T, config *rest.Config, home, name, revision, bundle string, change func(*bootstrap.Config)) *replica {
	t.Helper()
	wanted := bootstrap.Config{
		Config: leaderelection.Config{
			Namespace: home, Identity: name, Revision: revision,
			LeaseDuration: 10 * time.Minute, RenewDeadline: 5 * time.Minute, RetryPeriod: time.Second,
		},
		RESTConfig: config, Address: "127.0.0.1:0", CABundle: bundle,
		IngressMode: oneElection.IngressMode, DisableGatewayAPI: oneElection.DisableGatewayAPI,
	}
	if change != nil {
		change(&wanted)
	}
	r := servers.Run(t, wanted)
	await(t, "listening", func() bool { return r.Address() != "" })
	return r
}

// page requests a page of a server.
func page(t *testing.T, r *replica, path string) (int, string) {
	t.Helper()
	return harness.Page(t, r.Address(), path)
}

// state returns the election in a cluster, which is "" or "remote".
func state(t *testing.T, r *replica, where string) inspect.Election {
	t.Helper()
	states := r.Elections(t)
	i := slices.IndexFunc(states, func(e inspect.Election) bool { return e.Cluster == where })
	if i < 0 {
		t.Fatalf("no election in cluster %q: %+v", where, states)
	}
	return states[i]
}

// pilotIdentity returns an identity with the permissions of the chart.
func pilotIdentity(t *testing.T, c *cluster.Cluster, home, pod string) *rest.Config {
	t.Helper()
	config := oneElection
	config.Namespace = home
	return servers.Identity(t, c, config, pod, "pilot")
}

// terms returns the name of a metric sample for starts or ends of terms.
func terms(change, reason string) string {
	return fmt.Sprintf("incumbent_election_transitions_total{change=%q,name=%q,reason=%q}", change, leaderelection.NamespaceController, reason)
}

// The leader follows the default revision. A stopped leader releases the lock.
func TestServer_TwoRevisions(t *testing.T) {
	for _, lock := range []string{"configmap", "lease"} {
		t.Run(lock, func(t *testing.T) {
			c := cluster.Shared(t)
			admin, home, content := c.Client(t), c.Namespace(t), certificate(t)
			webhook := tagging.DefaultTagWebhook("")
			c.SetRevision(t, webhook, "stable")
			replicas := map[string]*replica{}
			for _, name := range []string{"stable", "canary"} {
				pod := "pod-of-" + name
				replicas[name] = serve(t, pilotIdentity(t, c, home, pod), home, pod, name, bundleFile(t, content), func(config *bootstrap.Config) {
					// After a retry period, another candidate acquires the lock of a nominee that has not written.
					config.LockType, config.RetryPeriod = lock, 10*time.Second
				})
				await(t, name+" knows the leader", func() bool { return state(t, replicas[name], "").Holder == "pod-of-stable" })
			}
			leads := func(who string) {
				t.Helper()
				await(t, who+" leads", func() bool { return state(t, replicas[who], "").Process.Leading })
				for name, r := range replicas {
					if name != who && state(t, r, "").Process.Leading {
						t.Errorf("%s and %s lead", name, who)
					}
					// The metrics of the servers are separate, although the servers share a process.
					want := map[bool]string{true: "1", false: "0"}[name == who]
					await(t, name+" metric", func() bool {
						return r.Metric(t, fmt.Sprintf("leader_election_master_status{name=%q}", leaderelection.NamespaceController)) == want
					})
				}
			}
			leads("stable")
			stable, canary := replicas["stable"], replicas["canary"]
			carries(t, admin, home, content)
			carries(t, admin, "default", content)
			await(t, "canary knows the leader", func() bool {
				now := state(t, canary, "")
				return now.Holder == "pod-of-stable" && now.Key == "stable" && now.Process.Default.Revision == "stable"
			})
			if now := state(t, canary, ""); now.Process.Identity != "pod-of-canary" || now.Process.Key != "canary" || now.Process.Phase != "following" {
				t.Errorf("state of canary: %+v", now)
			}
			c.SetRevision(t, webhook, "canary")
			leads("canary")
			await(t, "a handover is counted", func() bool {
				return stable.Metric(t, terms("ended", "handing-over")) == "1" && canary.Metric(t, terms("began", "nominated")) == "1"
			})
			canary.End()
			delete(replicas, "canary")
			leads("stable")
			await(t, "an acquired free lock is counted", func() bool { return stable.Metric(t, terms("began", "lock-free")) == "1" })
			stable.End()
			for name, r := range map[string]*replica{"stable": stable, "canary": canary} {
				if got := r.Log.Count("forbidden"); got != 0 {
					t.Errorf("%s: %d requests forbidden", name, got)
				}
				want := map[string]int{"stable": 2, "canary": 1}[name]
				if started, ended := r.Log.Count("run function started"), r.Log.Count("run function ended"); started != want || started != ended {
					t.Errorf("%s: run functions started %d times, ended %d times, want %d", name, started, ended, want)
				}
			}
		})
	}
}

// A server that starts while the API server is down becomes ready later.
func TestServer_StartsWithoutAPIServer(t *testing.T) {
	c := cluster.Shared(t)
	admin, home, content := c.Client(t), c.Namespace(t), certificate(t)
	config := pilotIdentity(t, c, home, "a")
	bringBack := stopAPIServer(t, c)
	r := serve(t, config, home, "a", "stable", bundleFile(t, content), nil)
	// From the default watcher, the controller and the Lease of the member.
	await(t, "reports", func() bool { return r.Log.Count("WARN", "refused") == 3 })
	if got := r.Log.Count("WARN"); got != 3 {
		t.Errorf("%d warnings", got)
	}
	if code, text := page(t, r, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "connection refused") {
		t.Errorf("/readyz without an API server: %d: %s", code, text)
	}
	if code, text := page(t, r, "/healthz"); code != http.StatusOK {
		t.Errorf("unhealthy without an API server: %s", text)
	}
	bringBack()
	await(t, "readiness", func() bool { code, _ := page(t, r, "/readyz"); return code == http.StatusOK })
	carries(t, admin, home, content)
	r.End()
}
