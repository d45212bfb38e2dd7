package bootstrap

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// metrics are a server's, in a registry of its own. The first two have client-go's
// names and meaning.
type metrics struct {
	registry *prometheus.Registry
	leader   *prometheus.GaugeVec
	slowpath *prometheus.CounterVec
	phases   *prometheus.CounterVec
	requests *prometheus.HistogramVec
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		leader: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "leader_election_master_status",
			Help: "Whether this process leads the election of that name: 1, or 0.",
		}, []string{"name"}),
		slowpath: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "leader_election_slowpath_total",
			Help: "How many renewals of that election needed a read first.",
		}, []string{"name"}),
		phases: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "incumbent_election_phase_changes_total",
			Help: "How often this process went from one phase of that election to another, by reason.",
		}, []string{"name", "from", "to", "reason"}),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "incumbent_election_request_seconds",
			Help:    "How long requests for that election's lock took, by verb, role of this process and result.",
			Buckets: []float64{.002, .005, .01, .02, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"name", "verb", "role", "result"}),
	}
	m.registry.MustRegister(m.leader, m.slowpath, m.phases, m.requests,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

var (
	_ k8sleaderelection.MetricsProvider = (*metrics)(nil)
	_ k8sleaderelection.SlowpathMetric  = (*metrics)(nil)
	_ k8sleaderelection.Observer        = (*metrics)(nil)
)

// NewLeaderMetric is MetricsProvider's: the electors of this process share it.
func (m *metrics) NewLeaderMetric() k8sleaderelection.SwitchMetric { return m }

// On and Off are SwitchMetric's, SlowpathExercised is SlowpathMetric's.
func (m *metrics) On(name string) { m.leader.WithLabelValues(name).Set(1) }

func (m *metrics) Off(name string) { m.leader.WithLabelValues(name).Set(0) }

func (m *metrics) SlowpathExercised(name string) { m.slowpath.WithLabelValues(name).Inc() }

// Phase and Call are Observer's.
func (m *metrics) Phase(name, from, to, reason string) {
	m.phases.WithLabelValues(name, from, to, reason).Inc()
}

func (m *metrics) Call(name, verb, role, result string, took time.Duration) {
	m.requests.WithLabelValues(name, verb, role, result).Observe(took.Seconds())
}
