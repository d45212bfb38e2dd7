package electionmetrics

import (
	"maps"

	"github.com/prometheus/client_golang/prometheus"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// New returns the metrics of an election. All have the label name.
func New(l *leaderelection.LeaderElection) prometheus.Collector { return collector{l} }

type collector struct {
	election *leaderelection.LeaderElection
}

const token = "incumbent_election_term_token"

// each calls add with each metric. labels are the labels without name.
func (c collector) each(add func(kind prometheus.ValueType, value float64, labels prometheus.Labels, name, help string)) {
	now, gate := c.election.Status(), c.election.Gate()
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	revision, _ := k8sleaderelection.ParseRevisionKey(now.Key)
	byGate, byFence := gate.Refused()
	const refused, refusedHelp = "incumbent_election_refused_writes_total", "Number of guarded writes that the gate in this process or the fence in the API server refused."
	add(gauge, now.ValidFor.Seconds(), nil, "incumbent_election_validity_left_seconds",
		"How long this process may act without another renewal. 0 if it may not act.")
	add(gauge, now.Validity.Seconds(), nil, "incumbent_election_validity_seconds",
		"How long an acknowledged renewal allows the leader to act: the renew deadline.")
	add(gauge, canLead(now), prometheus.Labels{"revision": revision}, "incumbent_election_candidate",
		"1 if this process can lead: it is a candidate, its caches are warm and it is fit. Else 0. The label revision is its own.")
	add(gauge, now.HandoverWait.Seconds(), nil, "incumbent_election_handover_wait_seconds",
		"How long this process has had a reason to request the lock, or has been draining to hand it over. Else 0.")
	add(gauge, float64(now.Term.Token), nil, token, "Fencing token of the current term of this process. Absent if it has no term.")
	add(gauge, float64(now.Transitions), nil, "incumbent_election_term_transitions",
		"Number of terms in the record of the lock, as last observed.")
	add(gauge, now.LongDuration.Seconds(), nil, "incumbent_election_long_duration_seconds",
		"Longest duration on the lock that is too long, for example a lease of more than ten times the own one. Else 0.")
	add(counter, float64(gate.Admitted()), nil, "incumbent_election_admitted_writes_total",
		"Number of guarded writes that the gate in this process admitted.")
	add(counter, float64(byGate), prometheus.Labels{"by": "gate"}, refused, refusedHelp)
	add(counter, float64(byFence), prometheus.Labels{"by": "fence"}, refused, refusedHelp)
}

// canLead returns 1 if a process can lead, else 0.
func canLead(now leaderelection.Status) float64 {
	if now.Running && now.Warm && !now.Unfit {
		return 1
	}
	return 0
}

// desc returns the description of a metric. The name of the election is a constant label, so that each election can have a collector.
func (c collector) desc(labels prometheus.Labels, name, help string) *prometheus.Desc {
	all := prometheus.Labels{"name": c.election.Status().Lock}
	maps.Copy(all, labels)
	return prometheus.NewDesc(name, help, nil, all)
}

func (c collector) Describe(out chan<- *prometheus.Desc) {
	c.each(func(_ prometheus.ValueType, _ float64, labels prometheus.Labels, name, help string) {
		out <- c.desc(labels, name, help)
	})
}

func (c collector) Collect(out chan<- prometheus.Metric) {
	c.each(func(kind prometheus.ValueType, value float64, labels prometheus.Labels, name, help string) {
		if name != token || value != 0 {
			out <- prometheus.MustNewConstMetric(c.desc(labels, name, help), kind, value)
		}
	})
}
