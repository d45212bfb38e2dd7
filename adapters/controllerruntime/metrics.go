package controllerruntime

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"incumbent.dev/incumbent/internal/electionmetrics"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

// leaderStatus returns the metric of controller-runtime for leaders. controller-runtime does not export its gauge, but its registry
// returns it for a gauge with the same description.
func leaderStatus(lock string) prometheus.Gauge {
	vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "leader_election_master_status",
		Help: "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. " +
			"'name' is the string used to identify the lease. Please make sure to group by name.",
	}, []string{"name"})
	var registered prometheus.AlreadyRegisteredError
	if err := metrics.Registry.Register(vec); errors.As(err, &registered) {
		if existing, ok := registered.ExistingCollector.(*prometheus.GaugeVec); ok {
			vec = existing
		}
	}
	return vec.WithLabelValues(lock)
}

// registerMetrics registers the metrics of an election in the registry of controller-runtime. They have the same names as in
// `pilot server`.
func registerMetrics(l *leaderelection.LeaderElection) (unregister func()) {
	own := electionmetrics.New(l)
	if metrics.Registry.Register(own) != nil { // a second manager of the same election in this process has no metrics
		return func() {}
	}
	return func() { metrics.Registry.Unregister(own) }
}
