package controllerruntime

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection"
	testcluster "incumbent.dev/incumbent/tests/cluster"
)

const (
	lease    = 6 * time.Second
	deadline = 4 * time.Second
	retry    = 500 * time.Millisecond
)

// managers start a candidate that returns after the end of its term or of ctx. Their elections have the name of the manager.
var managers = map[string]func(ctx context.Context, config *rest.Config, namespace, name string) error{
	"controller-runtime": func(ctx context.Context, config *rest.Config, namespace, name string) error {
		leaseDuration, renewDeadline, retryPeriod := lease, deadline, retry
		o := options()
		o.LeaderElection = true
		o.LeaderElectionID = name
		o.LeaderElectionNamespace = namespace
		o.LeaseDuration = &leaseDuration
		o.RenewDeadline = &renewDeadline
		o.RetryPeriod = &retryPeriod
		o.LeaderElectionReleaseOnCancel = true
		m, err := manager.New(config, o)
		if err != nil {
			return err
		}
		_ = m.Start(ctx) // returns an error after the loss of the lock
		return nil
	},
	"manager": func(ctx context.Context, config *rest.Config, namespace, name string) error {
		m, err := NewManager(config, leaderelection.Config{
			Namespace: namespace, ElectionID: name, Identity: "a", LeaseDuration: lease, RenewDeadline: deadline, RetryPeriod: retry,
		}, options())
		if err != nil {
			return err
		}
		m.InTerms(func(context.Context, manager.Manager) error { return nil })
		return m.Start(ctx)
	},
}

// leaderSeries returns the leader election series of an election in the registry of controller-runtime.
func leaderSeries(t *testing.T, election string) map[string]float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	harness.Must(t, err)
	all := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			mine := false
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName())
				mine = mine || l.GetName() == "name" && l.GetValue() == election
			}
			if mine && strings.HasPrefix(family.GetName(), "leader_election") {
				all[family.GetName()+" "+strings.Join(labels, ",")] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return all
}

// In each state both managers export the same series, except after a stop. Package k8sleaderelection compares the electors.
func TestLeaderMetric_AsInControllerRuntime(t *testing.T) {
	c := testcluster.Shared(t)
	set, err := kubernetes.NewForConfig(c.Admin())
	harness.Must(t, err)
	for name, run := range managers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := c.Namespace(t)
			leases := set.CoordinationV1().Leases(namespace)
			// hold writes a record of another holder, or of none.
			hold := func(holder string) {
				t.Helper()
				lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
				err := testcluster.Edit(t.Context(), leases, lease, func(l *coordinationv1.Lease) {
					l.Spec = coordinationv1.LeaseSpec{
						HolderIdentity: &holder, LeaseDurationSeconds: ptr.To[int32](3600), LeaseTransitions: ptr.To[int32](7),
						AcquireTime: ptr.To(metav1.NowMicro()), RenewTime: ptr.To(metav1.NowMicro()),
					}
				})
				harness.Must(t, err)
			}
			exports := func(state string, value float64) {
				t.Helper()
				want := map[string]float64{"leader_election_master_status name": value}
				until(t, state, func() bool { return maps.Equal(leaderSeries(t, name), want) })
			}
			start := func() (stop func()) {
				return harness.Background(t, func(ctx context.Context) error { return run(ctx, c.Admin(), namespace, name) })
			}
			hold("other")
			stop := start()
			exports("a follower exports 0", 0)
			hold("")
			exports("a leader exports 1", 1)
			hold("other")
			exports("it exports 0 after the loss", 0)
			stop()
			exports("it exports 0 at the end", 0)
			hold("")
			stop = start()
			exports("a leader of another run exports 1", 1)
			stop()
			if name == "manager" {
				exports("it exports 0 after a stop", 0) // client-go exports 1 if no renewal was in flight
			}
		})
	}
}
