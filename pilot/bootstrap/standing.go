package bootstrap

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// standing collects what is true of a site's elections at the moment of asking.
type standing struct{ site *site }

var (
	coverLeft = prometheus.NewDesc("incumbent_election_cover_left_seconds",
		"For how much longer this process may act without a further renewal; 0 when it may not.", []string{"name"}, nil)
	token = prometheus.NewDesc("incumbent_election_term_token",
		"The fencing token of this process's present term; absent when it has none.", []string{"name"}, nil)
	transitions = prometheus.NewDesc("incumbent_election_term_transitions",
		"How many terms the lock's record counts, as last seen.", []string{"name"}, nil)
)

func (standing) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{coverLeft, token, transitions} {
		out <- d
	}
}

func (s standing) Collect(out chan<- prometheus.Metric) {
	for _, le := range s.site.mine {
		now := le.Status()
		out <- prometheus.MustNewConstMetric(coverLeft, prometheus.GaugeValue, now.CoverLeft.Seconds(), now.Lock)
		out <- prometheus.MustNewConstMetric(transitions, prometheus.GaugeValue, float64(now.Transitions), now.Lock)
		if n, err := strconv.ParseUint(now.Token, 10, 64); err == nil {
			out <- prometheus.MustNewConstMetric(token, prometheus.GaugeValue, float64(n), now.Lock)
		}
	}
}
