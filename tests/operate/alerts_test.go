package operate

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/prometheus"
)

// scene is an installation in its own namespace, with a fault that fires alerts.
type scene struct {
	namespace string
	// releases has values of each release of the chart, by revision.
	releases map[string]string
	// breaks produces the fault. If it is nil, the releases are the fault.
	breaks func(p *plane)
	alerts []string
}

// long is a lease that a stopped process keeps until the end of the test.
const long = "elections.leaseDuration=4m,elections.renewDeadline=3m,elections.retryPeriod=1s"

// scenes has a real fault for each alert. Two expressions contain a minute, so all faults exist concurrently.
var scenes = []scene{
	{
		namespace: "types", releases: map[string]string{"stable": "elections.lock=configmap", "canary": "elections.lock=lease"},
		alerts: []string{"IncumbentDifferentLockTypes", "IncumbentMultipleLeaders"},
	},
	{
		namespace: "image", releases: map[string]string{"stable": "elections.lock=lease,image=missing"},
		alerts: []string{"IncumbentNoHolder", "IncumbentNoLeader"},
	},
	{
		namespace: "slow", releases: map[string]string{"stable": "elections.leaseDuration=34s,elections.renewDeadline=25s,elections.retryPeriod=2s"},
		breaks: (*plane).slowLock, alerts: []string{"IncumbentRenewsLate", "IncumbentSlowRenewals"},
	},
	{
		namespace: "stuck", releases: map[string]string{"stable": long, "canary": long},
		breaks: func(p *plane) {
			leader := p.leader()
			p.must(p.Node.Signal(leader.Namespace, leader.Name, syscall.SIGSTOP))
			other := map[bool]string{true: "canary", false: "stable"}[strings.HasPrefix(leader.Name, "pilot-stable-")]
			p.do("helm -n stuck upgrade --install tags deploy/charts/tags --server-side=false --set=default=" + other)
		},
		alerts: []string{"IncumbentHandoverStuck"},
	},
	{
		namespace: "leases", releases: map[string]string{"stable": "elections.lock=lease"},
		breaks: func(p *plane) {
			p.t.Cleanup(p.repeat(func() { // also after a restart by the liveness probe
				for _, pod := range p.Node.Pods() {
					if pod.Namespace == p.namespace {
						_ = p.Node.Signal(pod.Namespace, pod.Name, syscall.SIGSTOP)
					}
				}
			}))
		},
		alerts: []string{"IncumbentLockNotRenewed"},
	},
	{
		namespace: "witness", releases: map[string]string{"stable": "args={--witness=socket,--witness-socket=/run/no-witness}"},
		breaks: func(p *plane) { p.t.Cleanup(p.repeat(p.deleteLock)) },
		alerts: []string{"IncumbentNoWitness", "IncumbentLeaderChanges"},
	},
	{
		// The servers use ConfigMaps, but a second fence admits only the holder of a Lease, which does not exist.
		namespace: "refused", releases: map[string]string{"stable": "fence.mode=deny"},
		breaks: func(p *plane) {
			p.do("electionctl fence install -n refused --lock=lease --revisions=stable --replace --keep --wait=0")
			p.do("kubectl create namespace refused-writes") // the leader writes into each new namespace
		},
		alerts: []string{"IncumbentFenceNotInEffect", "IncumbentWritesRefused"},
	},
}

// TestAlerts fires each alert of the chart by a real fault. Only the time for which an expression must be true is shorter.
func TestAlerts(t *testing.T) {
	if prometheus.Installed(t, "prometheus") == "" {
		harness.Skip(t, "no prometheus")
	}
	p := startCluster(t)
	var groups []group
	waiting := map[string]time.Time{} // by alert and namespace, since the fault
	rules := map[string]bool{}
	for _, s := range scenes {
		for _, g := range p.rules(s.namespace, "monitoring.rules.leases=true,"+s.releases["stable"]) {
			for _, rule := range g.Rules {
				rule["for"] = "1s"
				rules[rule["alert"].(string)] = true
			}
			g.Name += "-" + s.namespace
			groups = append(groups, g)
		}
		for _, revision := range slices.Sorted(maps.Keys(s.releases)) {
			p.install(s.namespace, revision, s.releases[revision])
		}
	}
	p.prometheus = startPrometheus(t, p, groups, p.serveLeases("leases"))
	t.Cleanup(p.repeat(func() {
		if err := p.prometheus.scrape(p); err != nil {
			t.Error(err)
		}
	}))
	for _, s := range scenes {
		own := *p
		own.namespace = s.namespace
		if s.breaks != nil {
			own.leads()
			s.breaks(&own)
		}
		for _, alert := range s.alerts {
			waiting[alert+" in "+s.namespace] = time.Now()
			delete(rules, alert)
		}
	}
	if len(rules) > 0 {
		t.Errorf("no fault fires %v", slices.Sorted(maps.Keys(rules)))
	}
	p.fired(waiting)
	p.prometheus.checkAnnotations(t)
}

// fired waits until all alerts have fired.
func (p *plane) fired(waiting map[string]time.Time) {
	p.t.Helper()
	p.shows("faults", "alerts", "all", func() string {
		found, err := p.prometheus.Query(p.t.Context(), `ALERTS{alertstate="firing"}`)
		for _, s := range found {
			alert := s.Metric["alertname"] + " in " + s.Metric["namespace"]
			if since, ok := waiting[alert]; ok {
				p.t.Logf("%s fires after %v", alert, time.Since(since).Round(time.Second))
				delete(waiting, alert)
			}
		}
		if len(waiting) == 0 {
			return "all"
		}
		return fmt.Sprint(slices.Sorted(maps.Keys(waiting)), err)
	})
}

// leads waits until the watched election has a leader.
func (p *plane) leads() {
	p.t.Helper()
	p.shows(p.namespace, "list", " leads", p.electionctl("list | grep '"+watched+" '"))
}

// slowLock lets a webhook delay each update of the watched lock by a tenth of the validity, and twice a minute until shortly before the
// validity ends. Prometheus samples the expression of IncumbentRenewsLate at that time.
func (p *plane) slowLock() {
	p.t.Helper()
	const step, stall, delay = 30 * time.Second, 17500 * time.Millisecond, 2600 * time.Millisecond
	p.review(func(ctx context.Context) string {
		wait := delay
		if left := time.Until(time.Now().Truncate(step).Add(step)); left < stall+delay {
			wait = left + 300*time.Millisecond
		}
		_ = apirequest.Pause(ctx, wait)
		return ""
	})
}

// serveLeases serves the metrics of the Leases of a namespace as kube-state-metrics does, and returns the job for Prometheus.
func (p *plane) serveLeases(namespace string) map[string]any {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leases, err := p.Kube.CoordinationV1().Leases(namespace).List(r.Context(), metav1.ListOptions{})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		for _, l := range leases.Items {
			holder := ""
			if l.Spec.HolderIdentity != nil {
				holder = *l.Spec.HolderIdentity
			}
			fmt.Fprintf(w, "kube_lease_owner{lease=%q,owner_kind=\"\",owner_name=\"\",namespace=%q,lease_holder=%q} 1\n", l.Name, l.Namespace, holder)
			if l.Spec.RenewTime != nil {
				fmt.Fprintf(w, "kube_lease_renew_time{lease=%q} %d\n", l.Name, l.Spec.RenewTime.Unix())
			}
		}
	}))
	p.t.Cleanup(server.Close)
	return map[string]any{"job_name": "kube-state-metrics", "honor_labels": true, "static_configs": []any{map[string]any{"targets": []string{server.Listener.Addr().String()}}}}
}
