package controllerruntime

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"incumbent.dev/incumbent/pilot/leaderelection"
)

// leads sets the metric of controller-runtime for leaders to 1. controller-runtime does not export its gauge, but its registry
// returns it for a gauge with the same description.
func leads(lock string) prometheus.Gauge {
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
	gauge := vec.WithLabelValues(lock)
	gauge.Set(1)
	return gauge
}

// registerMetrics registers the metrics of an election in the registry of controller-runtime. They have the same names as in
// `pilot server`. They are read during a scrape.
func registerMetrics(l *leaderelection.LeaderElection) (unregister func()) {
	labels := prometheus.Labels{"name": l.Status().Lock}
	gate := l.Gate()
	byFence := func() float64 {
		_, n := gate.Refused()
		return float64(n)
	}
	byGate := func() float64 {
		n, _ := gate.Refused()
		return float64(n)
	}
	var all []prometheus.Collector
	add := func(c prometheus.Collector) {
		// A second manager of the same election in this process has no metrics.
		if metrics.Registry.Register(c) == nil {
			all = append(all, c)
		}
	}
	counter := func(name, help string, by string, value func() float64) {
		labels := prometheus.Labels{"name": labels["name"]}
		if by != "" {
			labels["by"] = by
		}
		add(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}, value))
	}
	add(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "incumbent_election_validity_left_seconds", ConstLabels: labels,
		Help: "How long this process may act without another renewal. 0 if it may not act.",
	}, func() float64 { return l.Status().ValidityLeft.Seconds() }))
	counter("incumbent_election_admitted_writes_total", "Number of guarded writes that the gate in this process admitted.", "",
		func() float64 { return float64(gate.Admitted()) })
	const refused = "Number of guarded writes that the gate in this process or the fence in the API server refused."
	counter("incumbent_election_refused_writes_total", refused, "gate", byGate)
	counter("incumbent_election_refused_writes_total", refused, "fence", byFence)
	return func() {
		for _, c := range all {
			metrics.Registry.Unregister(c)
		}
	}
}
