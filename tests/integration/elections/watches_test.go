package elections

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"incumbent.dev/incumbent/internal/testutil/logs"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

const (
	// electionsPerProcess is enough that the elections of a process share a watch.
	electionsPerProcess = 6
	// electionPeriod is long: a follower polls after two silent periods, which a slow machine must not cause.
	electionPeriod = 15 * time.Second
)

func electionName(i int) string { return fmt.Sprintf("election-%d", i) }

// process takes part in several elections with one client.
type process struct {
	name      string
	set       *leaderelection.Set
	transport *transport
	leading   atomic.Int32
	log       logs.Buffer
}

// process returns a process that does not run yet.
func (x *fixture) process(name string, rules []rbacv1.PolicyRule) *process {
	x.Helper()
	p := &process{name: name, set: leaderelection.NewSet(), transport: newTransport()}
	config := x.cluster.Identity(x, cluster.IdentityOptions{
		Namespace: x.namespace, PodName: name, ServiceAccount: "process", Rules: rules, ClusterRules: tagRules(),
	})
	config.Wrap(p.transport.wrap)
	client, err := kube.NewClient(config, kube.WithOwnConnections())
	if err != nil {
		x.Fatal(err)
	}
	x.Cleanup(func() { kube.CloseIdleConnections(client) })
	for i := range electionsPerProcess {
		l, err := leaderelection.New(client, leaderelection.Config{
			Namespace: x.namespace, Identity: name, ElectionID: electionName(i), Lock: x.lock, PerRevision: true, Revision: "stable",
			LeaseDuration: time.Minute, RenewDeadline: 40 * time.Second, RetryPeriod: electionPeriod,
			Logger: slog.New(slog.NewTextHandler(&p.log, nil)),
		})
		if err != nil {
			x.Fatal(err)
		}
		p.set.Add(l.AddRunContext(func(ctx context.Context) error {
			p.leading.Add(1)
			defer p.leading.Add(-1)
			<-ctx.Done()
			return nil
		}))
	}
	return p
}

func (p *process) run(ctx context.Context, t testing.TB) {
	if err := p.set.RunContext(ctx); err != nil {
		t.Errorf("%s: %v", p.name, err)
	}
}

func (p *process) leadsAll() bool { return p.leading.Load() == electionsPerProcess }

func (p *process) followsAll(leader string) func() bool {
	return func() bool {
		return !slices.ContainsFunc(p.set.All(), func(l *leaderelection.LeaderElection) bool {
			holder, _ := l.Leader()
			return holder != leader
		})
	}
}

// The elections of a process share one watch if RBAC allows it, and otherwise have one each. In both cases a
// follower sends no requests, a leader sends one write per RetryPeriod, and followers see a release immediately.
func TestProcessWatches(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range electionsPerProcess {
		names = append(names, electionName(i)+"-stable")
	}
	for name, rules := range map[string][]rbacv1.PolicyRule{
		"shared":   slices.Concat(candidateRules(names...), lockRules(nil, "watch")),
		"separate": candidateRules(names...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newFixture(t, leaderelection.LockTypeLease)
			a := x.process("a", rules)
			b := x.process("b", rules)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan struct{})
			go func() { defer close(ended); a.run(ctx, t) }()
			eventually(t, "a leads all elections", a.leadsAll)
			run(t, func(ctx context.Context) { b.run(ctx, t) })
			eventually(t, "b follows in all elections", b.followsAll("a"))
			eventually(t, "b watches", func() bool {
				if name == "separate" {
					return b.transport.sent("WATCH") == electionsPerProcess
				}
				// Elections that start before the fourth have a watch each.
				return b.transport.sent("WATCH ALL") == 1 && b.transport.sent("WATCH") <= 3
			})
			checkRequests(t, a, b)
			cancel()
			<-ended
			eventually(t, "b leads all elections", b.leadsAll)
			for _, name := range names {
				if b.log.Count("claim=lock-free", "/"+name+" ") == 0 {
					t.Errorf("b did not see the release of %s:\n%s", name, b.log.String())
				}
			}
			if b.log.Count("failed to watch the lock") > 0 {
				t.Error("b logged that it may not watch the namespace, although it does not need to")
			}
		})
	}
}

// checkRequests counts the requests between two renewals.
func checkRequests(t *testing.T, leader, follower *process) {
	t.Helper()
	renewals := func() {
		before := leader.transport.sent("PUT")
		eventually(t, "renewals", func() bool { return leader.transport.sent("PUT")-before >= electionsPerProcess })
	}
	renewals() // the follower reads again when its watch has connected
	began := time.Now()
	all := leader.transport.sent("")
	follows := follower.transport.sent("")
	renewals()
	all = leader.transport.sent("") - all
	if most := electionsPerProcess * (int(time.Since(began)/electionPeriod) + 1); all > most {
		t.Errorf("the leader sent %d requests, want at most %d writes", all, most)
	}
	if n := follower.transport.sent("") - follows; n != 0 {
		t.Errorf("the follower sent %d requests", n)
	}
}
