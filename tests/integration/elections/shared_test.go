package elections

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/logs"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

// several is how many elections a process of these tests takes part in: enough to share
// a watch.
const several = 6

// period is their RetryPeriod. A follower polls after two silent ones, which a busy
// machine must not bring about.
const period = 4 * time.Second

// process takes part in several elections with one client, whose requests are counted.
type process struct {
	mu       sync.Mutex
	requests map[string]int // by method; WATCH of one object, WATCH ALL of a namespace
	elected  []*leaderelection.LeaderElection
	live     []bool
	log      logs.Buffer
	quit     func()
}

func (p *process) RoundTrip(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	what := req.Method
	if query := req.URL.Query(); query.Get("watch") != "" {
		if what = "WATCH"; query.Get("fieldSelector") == "" {
			what = "WATCH ALL"
		}
	}
	p.mu.Lock()
	p.requests[what]++
	p.mu.Unlock()
	return next.RoundTrip(req)
}

func (p *process) sent() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	sum := map[string]int{}
	for what, n := range p.requests {
		sum[what] = n
	}
	return sum
}

func (p *process) leads() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, live := range p.live {
		if live {
			n++
		}
	}
	return n
}

func (p *process) knows(holder string) (n int) {
	for _, l := range p.elected {
		if id, _ := l.Leader(); id == holder {
			n++
		}
	}
	return n
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// enterAll starts a process that takes part in all the elections.
func enterAll(t *testing.T, config *rest.Config, namespace, identity string) *process {
	t.Helper()
	p := &process{requests: map[string]int{}, live: make([]bool, several)}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return tripper(func(req *http.Request) (*http.Response, error) { return p.RoundTrip(next, req) })
	})
	client, err := kube.NewClient(config, kube.WithOwnConnections())
	if err != nil {
		t.Fatal(err)
	}
	set := leaderelection.NewSet()
	for i := range several {
		l, err := leaderelection.New(client, leaderelection.Config{
			Namespace: namespace, Identity: identity, ElectionID: fmt.Sprintf("election-%d", i), Revision: "stable",
			Lock: leaderelection.LeaseLock, PerRevision: true,
			LeaseDuration: 20 * time.Second, RenewDeadline: 12 * time.Second, RetryPeriod: period,
			Logger: slog.New(slog.NewTextHandler(io.MultiWriter(&p.log), nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		l.AddRunContext(func(ctx context.Context) error {
			p.set(i, true)
			defer p.set(i, false)
			<-ctx.Done()
			return nil
		})
		set.Add(l)
	}
	p.elected = set.All()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- set.RunContext(ctx) }()
	p.quit = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		kube.CloseIdleConnections(client)
		if t.Failed() {
			t.Logf("%s:\n%s", identity, p.log.String())
		}
	})
	t.Cleanup(p.quit)
	return p
}

func (p *process) set(i int, live bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live[i] = live
}

// leaseRights allow candidates their Leases, and, if wide, to watch all of the namespace.
func leaseRights(wide bool) []rbacv1.PolicyRule {
	groups, leases := []string{"coordination.k8s.io"}, []string{"leases"}
	var names []string
	for i := range several {
		names = append(names, fmt.Sprintf("election-%d-stable", i))
	}
	rules := []rbacv1.PolicyRule{
		{APIGroups: groups, Resources: leases, Verbs: []string{"create"}},
		{APIGroups: groups, Resources: leases, ResourceNames: names, Verbs: []string{"get", "update", "watch"}},
	}
	if wide {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: groups, Resources: leases, Verbs: []string{"watch"}})
	}
	return rules
}

// The elections of a process share one watch where that is allowed, and have one each
// where it is not. Either way a follower sends nothing while all is well, a leader one
// write in each RetryPeriod, and a release is seen at once.
func TestSeveralElectionsOfAProcess(t *testing.T) {
	for _, wide := range []bool{true, false} {
		t.Run(fmt.Sprintf("may watch the namespace %v", wide), func(t *testing.T) {
			t.Parallel()
			c := cluster.Shared(t)
			namespace := c.Namespace(t)
			identity := func(name string) *rest.Config {
				return c.Identity(t, cluster.IdentityOptions{
					Namespace: namespace, PodName: name, ServiceAccount: "pilot", Rules: leaseRights(wide), ClusterRules: webhookRights(),
				})
			}
			first, second := identity("a"), identity("b")
			a := enterAll(t, first, namespace, "a")
			eventually(t, "a leads all", func() bool { return a.leads() == several })
			b := enterAll(t, second, namespace, "b")
			eventually(t, "b follows all", func() bool { return b.knows("a") == several })
			wantWatches(t, b, wide)
			wantQuiet(t, a, b)
			a.quit()
			eventually(t, "b leads all", func() bool { return b.leads() == several })
			if n := strings.Count(b.log.String(), "claim=lock-free"); n != several {
				t.Errorf("%d of %d locks were found released, the others were waited for:\n%s", n, several, b.log.String())
			}
			if n := a.leads(); n != 0 {
				t.Errorf("%d functions of a are alive", n)
			}
			if strings.Contains(b.log.String(), "failed to watch the lock") {
				t.Error("the lack of a right that can be done without is reported")
			}
		})
	}
}

func wantWatches(t *testing.T, p *process, wide bool) {
	t.Helper()
	eventually(t, "the watches are as they should be", func() bool {
		sent := p.sent()
		if wide { // at most three were by themselves before there were four
			return sent["WATCH ALL"] == 1 && sent["WATCH"] <= 3
		}
		return sent["WATCH"] == several
	})
}

// wantQuiet looks at what is sent in a few RetryPeriods.
func wantQuiet(t *testing.T, leader, follower *process) {
	t.Helper()
	renewed := func(times int) {
		before := leader.sent()["PUT"]
		eventually(t, "renewals", func() bool { return leader.sent()["PUT"]-before >= times*several })
	}
	renewed(1) // the follower reads once more when its watch is up
	began, leads, follows := time.Now(), leader.sent(), follower.sent()
	renewed(3)
	most := several * (int(time.Since(began)/period) + 1)
	for what, n := range leader.sent() {
		if n -= leads[what]; what == "PUT" && n > most || what != "PUT" && n != 0 {
			t.Errorf("the leader sent %d %s in %v", n, what, time.Since(began))
		}
	}
	for what, n := range follower.sent() {
		if n -= follows[what]; n != 0 {
			t.Errorf("a follower sent %d %s", n, what)
		}
	}
}
