package controllerruntime

import (
	"errors"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

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
// `pilot server`. They are read during a scrape.
func registerMetrics(l *leaderelection.LeaderElection) (unregister func()) {
	name, gate := l.Status().Lock, l.Gate()
	refused := func(by string, n func() uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "incumbent_election_refused_writes_total", ConstLabels: prometheus.Labels{"name": name, "by": by},
			Help: "Number of guarded writes that the gate in this process or the fence in the API server refused.",
		}, func() float64 { return float64(n()) })
	}
	labels := prometheus.Labels{"name": name}
	all := []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "incumbent_election_validity_left_seconds", ConstLabels: labels,
			Help: "How long this process may act without another renewal. 0 if it may not act.",
		}, func() float64 { return l.Status().ValidFor.Seconds() }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "incumbent_election_admitted_writes_total", ConstLabels: labels,
			Help: "Number of guarded writes that the gate in this process admitted.",
		}, func() float64 { return float64(gate.Admitted()) }),
		refused("gate", func() uint64 { n, _ := gate.Refused(); return n }),
		refused("fence", func() uint64 { _, n := gate.Refused(); return n }),
	}
	// A second manager of the same election in this process has no metrics.
	all = slices.DeleteFunc(all, func(c prometheus.Collector) bool { return metrics.Registry.Register(c) != nil })
	return func() {
		for _, c := range all {
			metrics.Registry.Unregister(c)
		}
	}
}
