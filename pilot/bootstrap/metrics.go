package bootstrap

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/witness"
)

// metrics are the metrics of a server in one cluster. The first two have the names and meaning of client-go. Metrics that
// describe the current state are in package electionmetrics.
type metrics struct {
	// Registerer adds the label cluster="remote" for the remote cluster. Each cluster has its own registry, because a
	// registry cannot have a metric with and without a label.
	prometheus.Registerer
	registry  *prometheus.Registry
	leader    *prometheus.GaugeVec
	slowpath  *prometheus.CounterVec
	phases    *prometheus.CounterVec
	terms     *prometheus.CounterVec
	requests  *prometheus.CounterVec
	took      *prometheus.HistogramVec
	renewals  *prometheus.HistogramVec
	missing   *prometheus.GaugeVec // of rows with kinds from CustomResourceDefinitions
	changed   func()               // is called when a status changes
	witnessed *prometheus.CounterVec
	durations map[k8sleaderelection.Interval]*prometheus.HistogramVec
}

// The bounds of histogram buckets, in seconds.
var (
	requestBuckets = []float64{.002, .005, .01, .02, .05, .1, .25, .5, 1, 2.5, 5, 10}
	spanBuckets    = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300}
)

func newMetrics(remote bool) *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), changed: func() {}}
	m.Registerer = m.registry
	if remote {
		m.Registerer = prometheus.WrapRegistererWith(prometheus.Labels{"cluster": remoteLabel}, m.registry)
	} else { // metrics of the process
		m.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), ReadBuild().metric())
	}
	m.leader = m.gauge("leader_election_master_status", "1 if this process leads the election, else 0.", "name")
	m.slowpath = m.counter("leader_election_slowpath_total",
		"Number of writes that failed with a conflict and were followed by a read.", "name")
	m.phases = m.counter("incumbent_election_phase_changes_total",
		"Number of phase changes of this process, by reason.", "name", "from", "to", "reason")
	m.terms = m.counter("incumbent_election_transitions_total",
		"Number of terms of this process that began or ended, by reason.", "name", "change", "reason")
	m.requests = m.counter("incumbent_election_requests_total",
		"Number of completed requests for the lock, by verb, phase of this process and result. Watches are not counted.",
		"name", "verb", "role", "result")
	m.took = m.histogram("incumbent_election_request_seconds",
		"Duration of requests for the lock, by verb.", requestBuckets, "name", "verb")
	m.renewals = m.histogram("incumbent_election_renew_seconds",
		"Duration of acknowledged renewals, from request to response.", requestBuckets, "name")
	m.durations = map[k8sleaderelection.Interval]*prometheus.HistogramVec{
		k8sleaderelection.Drain: m.span("drain", "Duration of drains: from the stop of the run functions until all returned and every admitted write was answered."),
		k8sleaderelection.Handover: m.span("handover",
			"Duration of handovers to this process: from its request until it leads, including the drain of the former leader."),
		k8sleaderelection.HandoverGiven: m.span("handover_leader", "Duration of handovers by this process: from the acceptance until it wrote the challenger, including the drain."),
		k8sleaderelection.Leaderless: m.span("leaderless",
			"Time without an acting leader, as observed by this process. Do not add up the values of processes."),
		k8sleaderelection.WitnessRelease: m.span("witness_release",
			"Time from the end of the former leader's process until its witness released the lock."),
	}
	m.witnessed = m.counter("incumbent_election_witness_releases_total",
		"Number of locks that this process acquired after the witness of an ended leader released them.", "name")
	m.missing = m.gauge("incumbent_election_missing_kinds",
		"Number of resource kinds that the controller needs and the API server does not serve. Above 0, this process does not campaign. Absent if none are needed.", "name")
	return m
}

func (m *metrics) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return promauto.With(m).NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func (m *metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	return promauto.With(m).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func (m *metrics) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return promauto.With(m).NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

func (m *metrics) span(what, help string) *prometheus.HistogramVec {
	return m.histogram("incumbent_election_"+what+"_seconds", help, spanBuckets, "name")
}

// metrics is not a MetricsProvider, because that is global: tests run several servers in a process.
var _ k8sleaderelection.Observer = (*metrics)(nil)

// Phase implements Observer.
func (m *metrics) Phase(name, from, to, reason string) {
	m.phases.WithLabelValues(name, from, to, reason).Inc()
}

func (m *metrics) Call(name, verb, role, result string, took time.Duration) {
	m.requests.WithLabelValues(name, verb, role, result).Inc()
	m.took.WithLabelValues(name, verb).Observe(took.Seconds())
	if result == "conflict" {
		m.slowpath.WithLabelValues(name).Inc() // the elector reads the lock next
	}
	if verb == "renew" && result == "ok" {
		m.renewals.WithLabelValues(name).Observe(took.Seconds())
	}
}

// StatusChanged implements Observer.
func (m *metrics) StatusChanged(string) { m.changed() }

// Term implements Observer.
func (m *metrics) Term(name string, began bool, reason string) {
	change := "ended"
	leads := 0.0
	if began {
		change = "began"
		leads = 1
	}
	m.leader.WithLabelValues(name).Set(leads)
	m.terms.WithLabelValues(name, change, reason).Inc()
}

func (m *metrics) ObserveDuration(name string, what k8sleaderelection.Interval, took time.Duration) {
	if h := m.durations[what]; h != nil {
		h.WithLabelValues(name).Observe(took.Seconds())
	}
	if what == k8sleaderelection.WitnessRelease {
		m.witnessed.WithLabelValues(name).Inc()
	}
}

// witnessMetric reports whether the witness of this process responds.
func witnessMetric(w *witness.Client) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "incumbent_witness_connected",
		Help: "1 if the configured witness of this process responds, else 0. Absent without a witness.",
	}, func() float64 {
		if w.Connected() {
			return 1
		}
		return 0
	})
}
