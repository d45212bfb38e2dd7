package bootstrap

import (
	"github.com/prometheus/client_golang/prometheus"

	"incumbent.dev/incumbent/pilot/leaderelection"
)

// countWrites exports how many writes of an election's controller its gate let through, and
// how many were refused, by whom.
func countWrites(registry prometheus.Registerer, le *leaderelection.LeaderElection) {
	registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name:        "incumbent_election_admitted_writes_total",
		Help:        "How many writes guarded by that election the gate in this process has let through.",
		ConstLabels: prometheus.Labels{"name": le.Status().Lock},
	}, func() float64 { return float64(le.Gate().Admitted()) }))
	refused := map[string]func() float64{
		"gate":  func() float64 { n, _ := le.Gate().Refused(); return float64(n) },
		"fence": func() float64 { _, n := le.Gate().Refused(); return float64(n) },
	}
	for by, count := range refused {
		registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name:        "incumbent_election_refused_writes_total",
			Help:        "How many writes guarded by that election were refused, by the gate in this process or by the fence in the API server.",
			ConstLabels: prometheus.Labels{"name": le.Status().Lock, "by": by},
		}, count))
	}
}
