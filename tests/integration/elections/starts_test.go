package elections

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"incumbent.dev/incumbent/internal/testutil/logs"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
	"incumbent.dev/incumbent/tests/cluster"
)

// startElections is how many elections each process takes part in.
const startElections = 64

// starter is a process that comes up: its watcher of the default revision has not synced, and
// its elections start at once.
type starter struct {
	*leaderelection.Set
	name    string
	watcher revisions.DefaultWatcher
	log     *logs.Buffer

	mu    sync.Mutex
	leads map[string]bool
}

func (s *stage) starter(name, revision string, elections int) *starter {
	s.t.Helper()
	options := cluster.IdentityOptions{
		Namespace: s.namespace, PodName: name, ServiceAccount: "pilot", ClusterRules: webhookRights(s.tag()),
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"*"}}},
	}
	if s.blind[name] {
		options.ServiceAccount, options.ClusterRules = "blind", nil
	}
	client, err := kube.NewClient(s.cluster.Identity(s.t, options), kube.WithOwnConnections())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { kube.CloseIdleConnections(client) })
	p := &starter{Set: leaderelection.NewSet(), name: name, log: &logs.Buffer{}, leads: map[string]bool{}}
	log := slog.New(slog.NewTextHandler(p.log, nil))
	p.watcher = revisions.NewDefault(client, revisions.Config{Namespace: s.system, Logger: log})
	for i := range elections {
		id := fmt.Sprintf("start-%02d", i)
		l, err := leaderelection.New(client, leaderelection.Config{
			Namespace: s.namespace, Identity: name, ElectionID: id, Revision: revision,
			Lock: leaderelection.LeaseLock, DefaultWatcher: p.watcher, Logger: log,
		})
		if err != nil {
			s.t.Fatal(err)
		}
		p.Add(l.AddRunContext(func(ctx context.Context) error {
			p.set(id, true)
			<-ctx.Done()
			p.set(id, false)
			return nil
		}))
	}
	return p
}

func (p *starter) set(id string, leads bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leads[id] = leads
}

func (p *starter) leading() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, leads := range p.leads {
		if leads {
			n++
		}
	}
	return n
}

// run is what main does: the watcher and the elections, both at once, until the test ends.
func (p *starter) run(t *testing.T) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { p.watcher.Run(ctx.Done()) })
	running.Go(func() {
		if err := p.RunContext(ctx); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if t.Failed() {
			t.Logf("%s:\n%s", p.name, p.log.String())
		}
	})
}

var settled = regexp.MustCompile(`msg="election phase changed" .*to=settling`)

// costs counts the elections in which somebody settled: it held the lock, and a whole
// lease had to pass before it acted.
func costs(all []*starter) int {
	which := map[string]bool{}
	for _, p := range all {
		for line := range strings.Lines(p.log.String()) {
			if settled.MatchString(line) {
				_, rest, _ := strings.Cut(line, " election=")
				id, _, _ := strings.Cut(rest, " ")
				which[id] = true
			}
		}
	}
	return len(which)
}

// Replicas of several revisions start together, as after an outage, and none of them knows yet
// which revision is the default one. None of their elections costs a lease: nobody takes a
// lock by chance that another, who knows more, then takes away and settles.
func TestStartOfAllReplicasTogether(t *testing.T) {
	for name, parts := range map[string][]string{
		"two revisions":               {"stable", "canary"},
		"two revisions, two replicas": {"stable", "stable", "canary", "canary"},
		"three revisions":             {"stable", "canary", "next"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, leaderelection.LeaseLock)
			s.setDefault(t, "canary")
			var all, ranked []*starter
			for i, revision := range parts {
				p := s.starter(fmt.Sprintf("%s-%d", revision, i), revision, startElections)
				if all = append(all, p); revision == "canary" {
					ranked = append(ranked, p)
				}
			}
			began, slow := time.Now(), time.Duration(0)
			for _, p := range all {
				p.run(t)
			}
			for _, p := range all {
				eventually(t, p.name+" knows the default revision", p.watcher.HasSynced)
				slow = max(slow, time.Since(began))
			}
			eventually(t, "the default revision leads all", func() bool {
				n := 0
				for _, p := range ranked {
					n += p.leading()
				}
				return n == startElections
			})
			n := costs(all)
			t.Logf("figure: %s: %d of %d elections cost a lease; the last watcher had synced after %v", name, n, startElections, slow.Round(time.Millisecond))
			// A watcher that needs longer than candidates wait for it is another story.
			if n > 0 && slow < 2*time.Second {
				t.Errorf("%d of %d elections cost a lease", n, startElections)
			}
		})
	}
}

// What the count above is worth: a candidate that never hears of the default revision takes the
// locks when it has waited, and the one that knows takes each from it and settles.
func TestAStartThatCostsLeasesIsCounted(t *testing.T) {
	t.Parallel()
	s := newStage(t, leaderelection.LeaseLock)
	s.blind["stable"] = true
	s.setDefault(t, "canary")
	const few = 3
	stable := s.starter("stable", "stable", few)
	stable.run(t)
	eventually(t, "stable leads all", func() bool { return stable.leading() == few })
	canary := s.starter("canary", "canary", few)
	canary.run(t)
	eventually(t, "canary leads all", func() bool { return canary.leading() == few })
	if n := costs([]*starter{stable, canary}); n != few {
		t.Errorf("%d elections are said to have cost a lease, want %d", n, few)
	}
}
