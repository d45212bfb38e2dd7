package bootstrap

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// metrics are those of a server in one cluster. The first two have client-go's
// names and meaning. What is true at the moment of asking is in statusCollector.
type metrics struct {
	// Registerer is where metrics of the site are registered; those of the remote cluster carry a label that
	// says so. Each site has a registry of its own, for one cannot have a name with and without a label.
	prometheus.Registerer
	registry  *prometheus.Registry
	leader    *prometheus.GaugeVec
	slowpath  *prometheus.CounterVec
	phases    *prometheus.CounterVec
	terms     *prometheus.CounterVec
	requests  *prometheus.CounterVec
	took      *prometheus.HistogramVec
	renewals  *prometheus.HistogramVec
	unknown   *prometheus.GaugeVec // of rows whose kinds come by definitions
	changed   func()               // who shows elections has something new to show
	durations map[k8sleaderelection.Interval]*prometheus.HistogramVec
}

// From what a request takes to what a lease does, in seconds.
var (
	requestBuckets = []float64{.002, .005, .01, .02, .05, .1, .25, .5, 1, 2.5, 5, 10}
	spanBuckets    = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300}
)

func newMetrics(remote bool) *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), changed: func() {}}
	m.Registerer = m.registry
	if remote {
		m.Registerer = prometheus.WrapRegistererWith(prometheus.Labels{"cluster": remoteLabel}, m.registry)
	} else { // of the process, which is one
		m.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), ReadBuild().metric())
	}
	m.leader = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "leader_election_master_status",
		Help: "Whether this process leads the election of that name: 1, or 0.",
	}, []string{"name"})
	m.slowpath = m.counter("leader_election_slowpath_total",
		"How many renewals of that election needed a read first.", "name")
	m.phases = m.counter("incumbent_election_phase_changes_total",
		"How often this process went from one phase of that election to another, by reason.", "name", "from", "to", "reason")
	m.terms = m.counter("incumbent_election_transitions_total",
		"How often a term of this process began or ended, by reason: how it came by the lock, and why it stopped.", "name", "change", "reason")
	m.requests = m.counter("incumbent_election_requests_total",
		"How many requests for that election's lock have ended, by what they were for, the phase of this process and the result. Watches are not in it.",
		"name", "verb", "role", "result")
	m.took = m.histogram("incumbent_election_request_seconds",
		"How long requests for that election's lock took, by what they were for.", requestBuckets, "name", "verb")
	m.renewals = m.histogram("incumbent_election_renew_seconds",
		"How long acknowledged renewals took, from sending to the answer.", requestBuckets, "name")
	m.durations = map[k8sleaderelection.Interval]*prometheus.HistogramVec{
		k8sleaderelection.Drain: m.span("drain", "From telling run functions to stop until all had returned and every admitted write was answered."),
		k8sleaderelection.Handover: m.span("handover",
			"From asking a leader for its lock until this process led, the drain of the former leader included."),
		k8sleaderelection.HandoverGiven: m.span("handover_given", "From accepting a request until the challenger was written in, the drain included."),
		k8sleaderelection.Leaderless: m.span("leaderless",
			"How long nobody acted as this process saw it, from a record that shows no live holder to one whose holder acts. "+
				"Each process that looks on has its own; they are not to be added up."),
	}
	m.unknown = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "incumbent_election_definitions_missing",
		Help: "How many kinds that election's controller needs and the API server does not know: until it does, this process does not take part. Absent for elections that need none.",
	}, []string{"name"})
	m.MustRegister(m.leader, m.unknown)
	return m
}

func (m *metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.MustRegister(v)
	return v
}

func (m *metrics) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	m.MustRegister(v)
	return v
}

func (m *metrics) span(what, help string) *prometheus.HistogramVec {
	return m.histogram("incumbent_election_"+what+"_seconds", help, spanBuckets, "name")
}

// client-go's way, a MetricsProvider, is one for the whole process: two servers in one,
// as tests have them, would report to whichever came last.
var _ k8sleaderelection.TermObserver = (*metrics)(nil)

// Phase and Call are Observer's.
func (m *metrics) Phase(name, from, to, reason string) {
	m.phases.WithLabelValues(name, from, to, reason).Inc()
}

func (m *metrics) Call(name, verb, role, result string, took time.Duration) {
	m.requests.WithLabelValues(name, verb, role, result).Inc()
	m.took.WithLabelValues(name, verb).Observe(took.Seconds())
	if result == "conflict" {
		m.slowpath.WithLabelValues(name).Inc() // the elector's picture was behind: it reads now
	}
	if verb == "renew" && result == "ok" {
		m.renewals.WithLabelValues(name).Observe(took.Seconds())
	}
}

// StatusChanged is TermObserver's.
func (m *metrics) StatusChanged(string) { m.changed() }

// Term and ObserveDuration are TermObserver's.
func (m *metrics) Term(name string, began bool, reason string) {
	change, leads := "ended", 0.0
	if began {
		change, leads = "began", 1
	}
	m.leader.WithLabelValues(name).Set(leads)
	m.terms.WithLabelValues(name, change, reason).Inc()
}

func (m *metrics) ObserveDuration(name string, what k8sleaderelection.Interval, took time.Duration) {
	if h := m.durations[what]; h != nil {
		h.WithLabelValues(name).Observe(took.Seconds())
	}
}

// statusCollector collects what is true of a site's elections at the moment of asking.
type statusCollector struct{ site *site }

var (
	coverLeft = prometheus.NewDesc("incumbent_election_cover_left_seconds",
		"For how much longer this process may act without a further renewal; 0 when it may not.", []string{"name"}, nil)
	cover = prometheus.NewDesc("incumbent_election_cover_seconds",
		"For how long an acknowledged renewal lets the leader act: the renew deadline.", []string{"name"}, nil)
	candidate = prometheus.NewDesc("incumbent_election_candidate",
		"Whether this process could lead: 1 when it takes part in the election, its caches are warm and it is fit, else 0. The revision is its own.",
		[]string{"name", "revision"}, nil)
	handoverWait = prometheus.NewDesc("incumbent_election_handover_wait_seconds",
		"For how long this process has had a reason to ask the leader for the lock, or, as the leader, has been ending its work to hand it over; 0 when neither is so.",
		[]string{"name"}, nil)
	token = prometheus.NewDesc("incumbent_election_term_token",
		"The fencing token of this process's present term; absent when it has none.", []string{"name"}, nil)
	transitions = prometheus.NewDesc("incumbent_election_term_transitions",
		"How many terms the lock's record counts, as last seen.", []string{"name"}, nil)
)

func (statusCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{coverLeft, cover, candidate, handoverWait, token, transitions} {
		out <- d
	}
}

func (s statusCollector) Collect(out chan<- prometheus.Metric) {
	for _, le := range s.site.mine {
		now := le.Status()
		out <- prometheus.MustNewConstMetric(coverLeft, prometheus.GaugeValue, now.CoverLeft.Seconds(), now.Lock)
		out <- prometheus.MustNewConstMetric(cover, prometheus.GaugeValue, now.Cover.Seconds(), now.Lock)
		out <- prometheus.MustNewConstMetric(candidate, prometheus.GaugeValue, could(now), now.Lock, s.site.config.Revision)
		out <- prometheus.MustNewConstMetric(handoverWait, prometheus.GaugeValue, now.HandoverWait.Seconds(), now.Lock)
		out <- prometheus.MustNewConstMetric(transitions, prometheus.GaugeValue, float64(now.Transitions), now.Lock)
		if n, err := strconv.ParseUint(now.Token, 10, 64); err == nil {
			out <- prometheus.MustNewConstMetric(token, prometheus.GaugeValue, float64(n), now.Lock)
		}
	}
}

// could reports as a number whether a process could lead.
func could(now leaderelection.Status) float64 {
	if now.Running && now.Warm && !now.Unfit {
		return 1
	}
	return 0
}

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
