package main

import (
	"fmt"
	"strings"
)

const leads = "leader_election_master_status"

// of returns a selector for the chosen elections, with further matchers. It adds the prefix of incumbent's metrics.
func of(metric string, matchers ...string) string {
	if metric != leads {
		metric = "incumbent_" + metric
	}
	return fmt.Sprintf("%s{%s}", metric, strings.Join(append([]string{`namespace=~"$namespace"`, `name=~"$name"`}, matchers...), ", "))
}

// each identifies an election. Elections of a remote cluster have the same names.
const each = "namespace, cluster, name"

// quantile returns a quantile of a histogram for each election.
func quantile(q float64, histogram string) string {
	return fmt.Sprintf("histogram_quantile(%v, sum by (%s, le) (rate(%s[$__rate_interval])))", q, each, of(histogram+"_bucket"))
}

// count returns the number of elections in an expression.
func count(expr string) string { return fmt.Sprintf("count(%s) or vector(0)", expr) }

// byRevision adds the revision of the process to an expression.
func byRevision(expr string) string {
	return fmt.Sprintf("sum by (%s, revision) (%s * on (%s, pod) group_left (revision) (%s >= bool 0))", each, expr, each, of("election_candidate"))
}

const election = "{{cluster}} {{name}}"

var (
	zeroIsGood = []limit{{0, "green"}, {1, "red"}}
	leading    = []state{{"0", "follower", "transparent"}, {"1", "leader", "green"}, {"2", "two leaders", "red"}}
	inEffect   = []state{{"0", "not in effect", "red"}, {"1", "in effect", "green"}}
)

var panels = []panel{
	{
		title: "No leader", description: "Elections with candidates but no leader.", kind: "stat", width: 6, height: 4, limits: zeroIsGood,
		queries: []query{{count(fmt.Sprintf("max by (%s) (%s) == 0", each, of(leads))), "elections"}},
	},
	{
		title: "Several leaders", description: "Elections with more than one process that reports to lead. During a handover, samples can differ in age.",
		kind: "stat", width: 6, height: 4, limits: zeroIsGood,
		queries: []query{{count(fmt.Sprintf("sum by (%s) (%s) > 1", each, of(leads))), "elections"}},
	},
	{
		title: "Fences not in effect", description: "Elections with at least one process that found the fence not in effect.", kind: "stat", width: 6, height: 4, limits: zeroIsGood,
		queries: []query{{count(fmt.Sprintf("min by (%s) (%s) == 0", each, of("fence_in_effect"))), "elections"}},
	},
	{
		title: "Lowest validity left", description: "The smallest share of the validity that a leader has left. Below a quarter, the leader nearly loses its term.",
		kind: "stat", unit: "percentunit", width: 6, height: 4, limits: []limit{{0, "red"}, {0.25, "orange"}, {0.4, "green"}},
		queries: []query{{fmt.Sprintf("min((%s > 0) / %s)", of("election_validity_left_seconds"), of("election_validity_seconds")), "validity left"}},
	},
	{
		title: "Leaders by revision", description: "One row for each election and revision.", kind: "state-timeline", width: columns, height: 10, states: leading,
		queries: []query{{byRevision(of(leads)), election + ": {{revision}}"}},
	},
	{
		title: "Leaders by Pod", description: "One row for each leader.", kind: "state-timeline", width: columns, height: 8, states: leading,
		queries: []query{{of(leads) + " == 1", election + ": {{pod}}"}},
	},
	{title: "Handovers", kind: "row", width: columns, height: 1},
	{
		title: "Handover duration", description: "Total: from the request until the challenger leads. Leader: from the acceptance until the leader wrote the challenger.",
		kind: "timeseries", unit: "s", width: 8, height: 8,
		queries: []query{{quantile(0.99, "election_handover_seconds"), election + ": total"}, {quantile(0.99, "election_handover_leader_seconds"), election + ": leader"}},
	},
	{
		title: "Pending handovers", description: "How long a candidate has waited for the lock, or a leader has been draining.", kind: "timeseries", unit: "s", width: 8, height: 8,
		queries: []query{{of("election_handover_wait_seconds") + " > 0", election + ": {{pod}}"}},
	},
	{
		title: "Leaderless time", description: "The longest time that one process observed. Do not add up the values of processes.", kind: "timeseries", unit: "s", width: 8, height: 8,
		queries: []query{{fmt.Sprintf("max by (%s) (increase(%s[$__rate_interval]))", each, of("election_leaderless_seconds_sum")), election}},
	},
	{
		title: "Terms per hour", description: "Started and ended terms, by reason.", kind: "timeseries", width: 12, height: 8,
		queries: []query{{fmt.Sprintf("sum by (%s, change, reason) (increase(%s[1h]))", each, of("election_transitions_total")), election + ": {{change}}, {{reason}}"}},
	},
	{
		title: "Drain duration", description: "From the stop of the controller until it returned.", kind: "timeseries", unit: "s", width: 12, height: 8,
		queries: []query{{quantile(0.99, "election_drain_seconds"), election}},
	},
	{title: "Renewals", kind: "row", width: columns, height: 1},
	{
		title: "Renewal duration", description: "Acknowledged renewals, from request to response.", kind: "timeseries", unit: "s", width: 8, height: 8,
		queries: []query{{quantile(0.5, "election_renew_seconds"), election + ": median"}, {quantile(0.99, "election_renew_seconds"), election + ": p99"}},
	},
	{
		title: "Validity left", description: "Share of the validity that the leader has left.", kind: "timeseries", unit: "percentunit", width: 8, height: 8, most: 1,
		queries: []query{{fmt.Sprintf("max by (%s) (%s / %s)", each, of("election_validity_left_seconds"), of("election_validity_seconds")), election}},
	},
	{
		title: "Failed requests", description: "Requests for the lock per second.", kind: "timeseries", unit: "reqps", width: 8, height: 8,
		queries: []query{{fmt.Sprintf("sum by (%s, verb, result) (rate(%s[$__rate_interval]))", each, of("election_requests_total", `result!="ok"`)), election + ": {{verb}}, {{result}}"}},
	},
	{title: "Gate and fence", kind: "row", width: columns, height: 1},
	{
		title: "Refused writes", description: "Refused by gate and fence, per second.", kind: "timeseries", unit: "wps", width: 8, height: 8,
		queries: []query{{fmt.Sprintf("sum by (%s, by) (rate(%s[$__rate_interval]))", each, of("election_refused_writes_total")), election + ": {{by}}"}},
	},
	{
		title: "Admitted writes", description: "Admitted by the gate, per second.", kind: "timeseries", unit: "wps", width: 8, height: 8,
		queries: []query{{fmt.Sprintf("sum by (%s) (rate(%s[$__rate_interval]))", each, of("election_admitted_writes_total")), election}},
	},
	{
		title: "Fences", description: "The worst state that a process found.", kind: "state-timeline", width: 8, height: 8, states: inEffect,
		queries: []query{{fmt.Sprintf("min by (%s) (%s)", each, of("fence_in_effect")), election}},
	},
	{
		title: "Candidates", description: "Processes that are warm and fit, by revision.", kind: "timeseries", width: columns, height: 8,
		queries: []query{{fmt.Sprintf("sum by (%s, revision) (%s)", each, of("election_candidate")), election + ": {{revision}}"}},
	},
}
