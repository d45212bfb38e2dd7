package connections

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/logs"
	"incumbent.dev/incumbent/internal/testutil/relay"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

const (
	election = "istio-leader"
	// soon bounds every wait; what takes this long has failed.
	soon = time.Minute
	// pace is the interval of writes and of checks. Many candidates run concurrently, and a shorter interval would overload the
	// machine.
	pace = 200 * time.Millisecond
)

// through is a configuration that goes through a relay to where it went, or to other
// API servers of the same cluster.
func through(t testing.TB, config *rest.Config, servers ...string) (*rest.Config, *relay.Relay) {
	t.Helper()
	if len(servers) == 0 {
		servers = []string{config.Host}
	}
	var targets []string
	for _, server := range servers {
		at, err := url.Parse(server)
		if err != nil {
			t.Fatal(err)
		}
		targets = append(targets, at.Host)
	}
	r, err := relay.Listen(t.Context(), targets...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	config = rest.CopyConfig(config)
	host, _, _ := strings.Cut(targets[0], ":")
	config.Host, config.ServerName = "https://"+r.Addr(), host
	return config, r
}

// candidate is one elector that reaches its API servers through a relay, and whose work
// writes without a pause.
type candidate struct {
	*leaderelection.LeaderElection
	relay     *relay.Relay
	admin     kubernetes.Interface
	namespace string
	log       *logs.Buffer

	mu      sync.Mutex
	terms   int
	written int           // writes of the work that succeeded
	longest time.Duration // time of a request with any result
	last    error
}

// enter runs a candidate until the test ends.
func enter(t testing.TB, c *cluster.Cluster, timing timing, servers ...string) *candidate {
	t.Helper()
	namespace := c.Namespace(t)
	return enterIn(t, c, namespace, "pilot-0", timing, servers...)
}

type timing struct{ lease, deadline, retry time.Duration }

var (
	istio    = timing{30 * time.Second, 15 * time.Second, 7500 * time.Millisecond}
	clientGo = timing{15 * time.Second, 10 * time.Second, 2 * time.Second}
	brisk    = timing{10 * time.Second, 8 * time.Second, time.Second}
)

func enterIn(t testing.TB, c *cluster.Cluster, namespace, name string, timing timing, servers ...string) *candidate {
	t.Helper()
	direct := c.Identity(t, cluster.IdentityOptions{
		Namespace: namespace, PodName: name, ServiceAccount: "pilot",
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"", "coordination.k8s.io"}, Resources: []string{"configmaps", "leases"}, Verbs: []string{"*"},
		}},
	})
	config, r := through(t, direct, servers...)
	d := &candidate{relay: r, admin: c.Client(t).Kube(), namespace: namespace, log: &logs.Buffer{}}
	var err error
	d.LeaderElection, err = leaderelection.New(cluster.ClientFor(t, config), leaderelection.Config{
		Namespace: namespace, Identity: name, ElectionID: election, Revision: "stable", Lock: leaderelection.LockTypeLease,
		LeaseDuration: timing.lease, RenewDeadline: timing.deadline, RetryPeriod: timing.retry,
		Logger: slog.New(slog.NewTextHandler(d.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	d.AddRunContext(d.work)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- d.RunContext(ctx) }()
	t.Cleanup(func() {
		r.Present(relay.Fate{})
		r.Coming(relay.Fate{})
		r.Reset()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		kube.CloseIdleConnections(d.Client())
		if t.Failed() {
			t.Logf("%s:\n%s", name, d.log.String())
		}
	})
	return d
}

// work writes, again and again, with no deadline of its own.
func (d *candidate) work(ctx context.Context) error {
	d.mu.Lock()
	d.terms++
	d.mu.Unlock()
	maps := d.Client().Kube().CoreV1().ConfigMaps(d.namespace)
	_, _ = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "work"}}, metav1.CreateOptions{})
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		began := time.Now()
		_, err := maps.Patch(ctx, "work", types.MergePatchType, fmt.Appendf(nil, `{"data":{"n":"%d"}}`, n), metav1.PatchOptions{})
		d.mu.Lock()
		d.longest = max(d.longest, time.Since(began))
		if d.last = err; err == nil {
			d.written++
		}
		d.mu.Unlock()
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// counts are the terms so far and the writes that succeeded.
func (d *candidate) counts() (terms, written int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.terms, d.written
}

func (d *candidate) worst() (time.Duration, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.longest, d.last
}

// lead waits until it leads and its work has written.
func (d *candidate) lead(t testing.TB) {
	t.Helper()
	eventually(t, "it leads and works", func() bool { _, written := d.counts(); return d.IsLeader() && written > 2 })
}

func (d *candidate) record(t testing.TB) coordinationv1.LeaseSpec {
	t.Helper()
	lease, err := d.admin.CoordinationV1().Leases(d.namespace).Get(t.Context(), election, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return lease.Spec
}

// goesOn waits for renewals and for writes of the work, all after now, and fails if it took
// another term for that.
func (d *candidate) goesOn(t testing.TB, renewals, writes int) {
	t.Helper()
	before, written := d.counts()
	token := d.Status().Token
	renewed := d.record(t).RenewTime.Time
	for range renewals {
		eventually(t, "it renews", func() bool {
			now := d.record(t).RenewTime.Time
			later := now.After(renewed)
			renewed = now
			return later
		})
	}
	eventually(t, "its work goes on", func() bool { _, now := d.counts(); return now >= written+writes })
	if terms, _ := d.counts(); terms != before || d.Status().Token != token {
		t.Errorf("a term was lost: %d terms before, %d now; token %s before, %s now", before, terms, token, d.Status().Token)
	}
}

// eventually waits until f holds, and looks at the test's pace.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	deadline := time.After(soon)
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", soon, what)
		}
	}
}
