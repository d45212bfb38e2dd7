package alerts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/cluster/node"
)

// remoteLabel exists only in metrics of a remote cluster, which this test does not have.
const remoteLabel = "cluster"

// revisions have replicas Pods each.
var revisions = []string{"stable", "canary"}

const replicas = 2

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
	if err := errors.Join(c.LoadGatewayAPI(t.Context()), c.LoadDefinitions(t.Context(), filepath.Join("testdata", "definitions"))); err != nil {
		t.Fatal(err)
	}
	p := &plane{Cluster: c, namespace: c.Namespace(t)}
	p.node = node.Start(t, node.Options{
		Config: c.Admin(), Dir: t.TempDir(), Images: map[string]string{"pilot": build(t, "", "./cmd/pilot")}, PodNetwork: true,
		// Within the test, a process is restarted once.
		RestartDelay: time.Hour, MaxRestartDelay: time.Hour,
	})
	bundle := filepath.Join(t.TempDir(), "root-cert.pem")
	if err := os.WriteFile(bundle, c.Admin().CAData, 0o600); err != nil {
		t.Fatal(err)
	}
	for i, revision := range revisions {
		p.helm(t, "install", revision, chart("pilot"), "--wait", "--set", "image=pilot,caBundle.file="+bundle+",address=$(POD_IP):15014",
			"--set", "elections.leaseDuration=60s,elections.renewDeadline=40s,elections.retryPeriod=2s",
			"--set", everything+",monitoring.serviceMonitor.interval=1s")
		if i == 0 {
			p.flip(t, revision)
		}
	}
	return p
}

func (p *plane) helm(t *testing.T, args ...string) {
	t.Helper()
	helm(t, append(args, "--namespace", p.namespace, "--kubeconfig", p.Kubeconfig())...)
}

func (p *plane) flip(t *testing.T, revision string) {
	t.Helper()
	p.helm(t, "upgrade", "--install", "tags", chart("tags"), "--set", "default="+revision)
}

// list returns the objects of a resource of the operator.
func list[T any](t *testing.T, p *plane, resource string) (all []T) {
	t.Helper()
	config := p.Admin()
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer utilnet.CloseIdleConnectionsFor(http.Transport)
	client, err := dynamic.NewForConfigAndClient(config, http)
	if err != nil {
		t.Fatal(err)
	}
	kind := schema.GroupVersionResource{Group: "monitoring.coreos.com", Version: "v1", Resource: resource}
	found, err := client.Resource(kind).Namespace(p.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range found.Items {
		var one T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &one); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}

// loadRules loads the rules of the releases. If soon is set, it replaces each `for` of at most two minutes.
func (prom *server) loadRules(t *testing.T, p *plane, soon monitoringv1.Duration) {
	t.Helper()
	for _, object := range list[monitoringv1.PrometheusRule](t, p, "prometheusrules") {
		rules := slices.Clone(object.Spec.Groups[0].Rules)
		for i, rule := range rules {
			if rule.For == nil || soon == "" {
				continue
			}
			if wait, err := time.ParseDuration(string(*rule.For)); err != nil {
				t.Fatal(err)
			} else if wait <= 2*time.Minute {
				rules[i].For = &soon
			}
		}
		ruleFile(t, filepath.Join(prom.rules, object.Name+".yaml"), rules)
	}
	prom.Process.Signal(t, syscall.SIGHUP)
	prom.checkRules(t)
}

// kill kills every process of the control plane. The node restarts a process immediately, so kill also kills the second process. The
// third starts in an hour.
func (p *plane) kill(t *testing.T) {
	t.Helper()
	killed := map[string]bool{} // a restarted process
	harness.Until(t, "all processes ended", func() bool {
		alive := 0
		for _, pod := range p.node.Pods() {
			if pod.PID == 0 && killed[pod.Name] {
				continue
			}
			alive++
			if pod.PID == 0 {
				continue // it is being started
			}
			killed[pod.Name] = pod.Restarts > 0
			if err := syscall.Kill(pod.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				t.Fatal(err)
			}
		}
		return alive == 0
	})
}

// fired returns the alerts that have fired, with their elections.
func (p *server) fired(ctx context.Context) (map[string][]string, error) {
	all, err := p.query(ctx, `count by (alertname, name) (max_over_time(ALERTS{alertstate="firing"}[1h]))`)
	fired := map[string][]string{}
	for _, s := range all {
		fired[s.Metric["alertname"]] = append(fired[s.Metric["alertname"]], s.Metric["name"])
	}
	for _, names := range fired {
		slices.Sort(names)
	}
	return fired, err
}

// TestLive scrapes a control plane of two revisions with a real Prometheus. All metrics of alerts and dashboard exist. No alert
// fires during an upgrade. After all processes are killed, only IncumbentNoLeader fires.
func TestLive(t *testing.T) {
	t.Parallel() // one of them mostly waits
	installed(t, "prometheus")
	p := startPlane(t)
	prom := startPrometheus(t, p)
	prom.await(t, "four replicas are scraped", func(ctx context.Context) error { return prom.is(ctx, "count(up == 1)", "4") })
	prom.await(t, "stable leads", func(ctx context.Context) error {
		return prom.is(ctx, `count(leader_election_master_status{pod=~"pilot-stable-.*"} == 1)`, "4")
	})
	// Not earlier: until its discovery has finished, Prometheus finds no leader.
	prom.loadRules(t, p, "")
	p.flip(t, "canary")
	prom.await(t, "canary leads", func(ctx context.Context) error {
		return prom.is(ctx, `count(leader_election_master_status{pod=~"pilot-canary-.*"} == 1)`, "4")
	})
	for _, use := range everyUse(t) {
		prom.await(t, use.where, func(ctx context.Context) error { return prom.has(ctx, use) })
	}
	if err := prom.has(t.Context(), use{where: "a test", metric: "leader_election_master_status", labels: []string{"nosuch"}}); err == nil {
		t.Error("a missing label is found")
	}
	prom.checkPanels(t)
	prom.await(t, "no alert is pending", func(ctx context.Context) error {
		// Refusals at the start of a term count for five minutes.
		waiting, err := prom.query(ctx, `ALERTS{alertname!="IncumbentWritesRefused"}`)
		if err == nil && len(waiting) > 0 {
			err = fmt.Errorf("%v", waiting)
		}
		return err
	})
	if fired, err := prom.fired(t.Context()); err != nil || len(fired) > 0 {
		t.Fatalf("fired without a problem: %v (%v)", fired, err)
	}
	verify := exec.CommandContext(t.Context(), build(t, "electionctl", "."), "fence", "verify", "-n", p.namespace, "--kubeconfig", p.Kubeconfig())
	text, err := verify.CombinedOutput()
	for _, revision := range revisions {
		if held := "holds    policy incumbent-fence." + p.namespace + "-pilot-" + revision + "."; !strings.Contains(string(text), held) {
			t.Errorf("no line %q", held)
		}
	}
	if err != nil {
		t.Errorf("electionctl fence verify: %v\n%s", err, text)
	}
	prom.loadRules(t, p, "10s") // later than the handover, which may take longer
	p.kill(t)
	prom.await(t, "IncumbentNoLeader fires", func(ctx context.Context) error {
		fired, err := prom.fired(ctx)
		if err == nil && !slices.Equal(fired[noLeader], led) {
			err = fmt.Errorf("fired %v", fired)
		}
		return err
	})
	prom.checkAnnotations(t)
	if fired, err := prom.fired(t.Context()); err != nil || len(fired) != 1 {
		t.Errorf("fired after the kill: %v (%v)", slices.Collect(maps.Keys(fired)), err)
	}
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

// checkAnnotations checks the expanded texts of firing alerts.
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
