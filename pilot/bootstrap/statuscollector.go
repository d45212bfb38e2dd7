package bootstrap

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"incumbent.dev/incumbent/pilot/leaderelection"
)

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
