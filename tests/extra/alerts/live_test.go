package alerts

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/cluster/node"
)

// remoteLabel exists only in metrics of a remote cluster, which this test does not have.
const remoteLabel = "cluster"

// revisions have two Pods each.
var revisions = []string{"stable", "canary"}

// led are the elections of both revisions.
var led = []string{
	"istio-gateway-deployment-canary", "istio-gateway-deployment-stable", "istio-gateway-status-leader-canary",
	"istio-gateway-status-leader-stable", "istio-leader", "istio-namespace-controller-election",
}

// plane is a control plane from the charts, in real processes.
type plane struct {
	*cluster.Cluster
	node      *node.Node
	namespace string
}

func startPlane(t *testing.T) *plane {
	t.Helper()
	c := cluster.Shared(t)
	if err := c.LoadGatewayAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := &plane{Cluster: c, namespace: c.Namespace(t)}
	p.node = node.Start(t, node.Options{
		Config: c.Admin(), Dir: t.TempDir(), Images: map[string]string{"pilot": build(t, "", "./cmd/pilot")},
	})
	bundle := filepath.Join(t.TempDir(), "root-cert.pem")
	if err := os.WriteFile(bundle, c.Admin().CAData, 0o600); err != nil {
		t.Fatal(err)
	}
	for i, revision := range revisions {
		p.helm(t, "install", revision, chart("pilot"), "--wait", "--set", "image=pilot,caBundle.file="+bundle+",address=$(POD_IP):15014",
			"--set", "elections.leaseDuration=60s,elections.renewDeadline=40s,elections.retryPeriod=2s")
		if i == 0 {
			p.flip(t, revision)
		}
	}
	return p
}

func (p *plane) helm(t *testing.T, args ...string) {
	t.Helper()
	if _, err := releases(t, p.namespace, p.Kubeconfig()).Run(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
}

func (p *plane) flip(t *testing.T, revision string) {
	t.Helper()
	p.helm(t, "upgrade", "--install", "tags", chart("tags"), "--set", "default="+revision)
}

// loadRules loads the rules of the releases.
func (p *server) loadRules(t *testing.T, namespace string) {
	t.Helper()
	for _, revision := range revisions {
		ruleFile(t, filepath.Join(p.rules, revision+".yaml"), renderedAs(t, revision, namespace, everything).rules[0].Spec.Groups[0].Rules)
	}
	p.Process.Signal(t, syscall.SIGHUP)
	p.checkRules(t)
}

// stop ends every process of the control plane.
func (p *plane) stop(t *testing.T) {
	t.Helper()
	for _, revision := range revisions {
		_, err := p.Client(t).Kube().AppsV1().Deployments(p.namespace).Patch(t.Context(), "pilot-"+revision, types.MergePatchType, []byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	harness.Until(t, "all processes ended", func() bool { return len(p.node.Pods()) == 0 })
}

// active returns the elections with an active alert by alert. Refusals at the start of a term count for five minutes.
func (p *server) active(ctx context.Context) (map[string][]string, error) {
	all, err := p.query(ctx, `ALERTS{alertname!="IncumbentWritesRefused"}`)
	active := map[string][]string{}
	for _, s := range all {
		active[s.Metric["alertname"]] = append(active[s.Metric["alertname"]], s.Metric["name"])
	}
	slices.Sort(active[noLeader])
	return active, err
}

// TestLive scrapes a control plane of two revisions with a real Prometheus. Each panel shows data. No alert fires during an upgrade,
// and none is active afterwards. After all processes have ended, only IncumbentNoLeader is active. TestRules has the times until
// alerts fire.
func TestLive(t *testing.T) {
	t.Parallel() // one of them mostly waits
	installed(t)
	p := startPlane(t)
	prom := startPrometheus(t, p)
	prom.await(t, "four replicas are scraped", func(ctx context.Context) error { return prom.is(ctx, "count(up == 1)", "4") })
	leads := func(revision string) {
		prom.await(t, revision+" leads", func(ctx context.Context) error {
			return prom.is(ctx, `count(leader_election_master_status{pod=~"pilot-`+revision+`-.*"} == 1)`, "4")
		})
	}
	leads("stable")
	// Not earlier: until the first scrapes, Prometheus finds no leader.
	prom.loadRules(t, p.namespace)
	p.flip(t, "canary")
	leads("canary")
	prom.checkPanels(t)
	prom.await(t, "no alert is active", func(ctx context.Context) error {
		return prom.is(ctx, `count(ALERTS{alertname!="IncumbentWritesRefused"}) or vector(0)`, "0")
	})
	if err := prom.is(t.Context(), `count(max_over_time(ALERTS{alertstate="firing"}[1h])) or vector(0)`, "0"); err != nil {
		t.Errorf("alerts fired without a problem: %v", err)
	}
	p.stop(t)
	prom.await(t, "only IncumbentNoLeader is active", func(ctx context.Context) error {
		active, err := prom.active(ctx)
		if err == nil && (len(active) != 1 || !slices.Equal(active[noLeader], led)) {
			err = fmt.Errorf("active: %v", active)
		}
		return err
	})
	prom.checkAnnotations(t)
}

// mayBeEmpty are panels without data in the normal case.
var mayBeEmpty = []string{"Pending handovers", "Failed requests"}

func (p *server) checkPanels(t *testing.T) {
	t.Helper()
	for _, target := range dashboard(t) {
		p.await(t, "panel "+target.panel, func(ctx context.Context) error {
			found, err := p.query(ctx, target.expr)
			if err == nil && len(found) == 0 && !slices.Contains(mayBeEmpty, target.panel) {
				err = fmt.Errorf("nothing is shown by %s", target.expr)
			}
			for _, s := range found {
				for _, label := range legend.FindAllStringSubmatch(target.legend, -1) {
					if s.Metric[label[1]] == "" && label[1] != remoteLabel {
						err = fmt.Errorf("no label %s in %v", label[1], s.Metric)
					}
				}
			}
			return err
		})
	}
}

func (p *server) checkRules(t *testing.T) {
	t.Helper()
	p.await(t, "each rule is evaluated", func(ctx context.Context) error {
		var data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
		if err := p.Get(ctx, "rules", nil, &data); err != nil {
			return err
		}
		if len(data.Groups) != len(revisions) {
			return fmt.Errorf("%d groups", len(data.Groups))
		}
		for _, group := range data.Groups {
			for _, rule := range group.Rules {
				if rule.Health != "ok" || rule.LastError != "" {
					return fmt.Errorf("%s is %s: %s", rule.Name, rule.Health, rule.LastError)
				}
			}
		}
		return nil
	})
}

// checkAnnotations checks the expanded texts of active alerts.
func (p *server) checkAnnotations(t *testing.T) {
	t.Helper()
	var data struct {
		Alerts []struct{ Labels, Annotations map[string]string }
	}
	if err := p.Get(t.Context(), "alerts", nil, &data); err != nil {
		t.Fatal(err)
	}
	for _, alert := range data.Alerts {
		for key, text := range alert.Annotations {
			if strings.Contains(text, "error expanding") || strings.Contains(text, "no value") || strings.Contains(text, "{{") {
				t.Errorf("%s of %v is %q", key, alert.Labels, text)
			}
		}
	}
	if len(data.Alerts) == 0 {
		t.Error("no alerts")
	}
}
