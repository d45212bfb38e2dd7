package main

import (
	"fmt"
	"strings"
)

const leads = "leader_election_master_status"

// of is a metric of the elections that the reader has chosen, with further matchers; a metric without a name is incumbent's.
func of(metric string, matchers ...string) string {
	if metric != leads {
		metric = "incumbent_" + metric
	}
	return fmt.Sprintf("%s{%s}", metric, strings.Join(append([]string{`namespace=~"$namespace"`, `name=~"$name"`}, matchers...), ", "))
}

// each is by what an election is told from others: those of a remote cluster have the same names.
const each = "namespace, cluster, name"

// quantile is one of a histogram, by election.
func quantile(q float64, histogram string) string {
	return fmt.Sprintf("histogram_quantile(%v, sum by (%s, le) (rate(%s[$__rate_interval])))", q, each, of(histogram+"_bucket"))
}

// count is how many elections an expression has.
func count(expr string) string { return fmt.Sprintf("count(%s) or vector(0)", expr) }

// byRevision adds to what each process says of itself its revision.
func byRevision(expr string) string {
	return fmt.Sprintf("sum by (%s, revision) (%s * on (%s, pod) group_left (revision) (%s >= bool 0))", each, expr, each, of("election_candidate"))
}

const election = "{{cluster}} {{name}}"

var (
	noneIsGood = []limit{{0, "green"}, {1, "red"}}
	leading    = []state{{"0", "does not lead", "transparent"}, {"1", "leads", "green"}, {"2", "two lead", "red"}}
	standing   = []state{{"0", "does not stand", "red"}, {"1", "stands", "green"}}
)

var panels = []panel{
	{
		title: "Nobody leads", says: "Elections with processes of which none leads.", kind: "stat", width: 6, height: 4, limits: noneIsGood,
		queries: []query{{count(fmt.Sprintf("max by (%s) (%s) == 0", each, of(leads))), "elections"}},
	},
	{
		title: "Two lead", says: "Elections that more than one process says it leads. During a handover one sample may be older than the other.",
		kind: "stat", width: 6, height: 4, limits: noneIsGood,
		queries: []query{{count(fmt.Sprintf("sum by (%s) (%s) > 1", each, of(leads))), "elections"}},
	},
	{
		title: "Fences that do not stand", says: "By the least of what the processes have found.", kind: "stat", width: 6, height: 4, limits: noneIsGood,
		queries: []query{{count(fmt.Sprintf("min by (%s) (%s) == 0", each, of("fence_in_effect"))), "elections"}},
	},
	{
		title: "Least cover left", says: "Of what a leader has at most, the least that one has now. Below a quarter it nearly loses its term.",
		kind: "stat", unit: "percentunit", width: 6, height: 4, limits: []limit{{0, "red"}, {0.25, "orange"}, {0.4, "green"}},
		queries: []query{{fmt.Sprintf("min((%s > 0) / %s)", of("election_cover_left_seconds"), of("election_cover_seconds")), "cover left"}},
	},
	{
		title: "Who leads what, by revision", says: "A row for each election and revision that takes part.", kind: "state-timeline", width: columns, height: 10, states: leading,
		queries: []query{{byRevision(of(leads)), election + ": {{revision}}"}},
	},
	{
		title: "Who leads what, by Pod", says: "The leaders alone.", kind: "state-timeline", width: columns, height: 8, states: leading,
		queries: []query{{of(leads) + " == 1", election + ": {{pod}}"}},
	},
	{title: "Handovers", kind: "row", width: columns, height: 1},
	{
		title: "Handovers took", says: "At the challenger, from asking until it led; at the leader, from accepting until the challenger was written in. Nothing where there were none.",
		kind: "timeseries", unit: "s", width: 8, height: 8,
		queries: []query{{quantile(0.99, "election_handover_seconds"), election + ": whole"}, {quantile(0.99, "election_handover_given_seconds"), election + ": leader's part"}},
	},
	{
		title: "Handovers that go on", says: "For how long a process has waited for the lock, or a leader has been ending its work.", kind: "timeseries", unit: "s", width: 8, height: 8,
		queries: []query{{of("election_handover_wait_seconds") + " > 0", election + ": {{pod}}"}},
	},
	{
		title: "Nobody acted", says: "The longest that one process saw; each has its own figure, which are not to be added up.", kind: "timeseries", unit: "s", width: 8, height: 8,
		queries: []query{{fmt.Sprintf("max by (%s) (increase(%s[$__rate_interval]))", each, of("election_leaderless_seconds_sum")), election}},
	},
	{
		title: "Terms, in an hour", says: "That began or ended, and why.", kind: "timeseries", width: 12, height: 8,
		queries: []query{{fmt.Sprintf("sum by (%s, change, reason) (increase(%s[1h]))", each, of("election_transitions_total")), election + ": {{change}}, {{reason}}"}},
	},
	{
		title: "Drains took", says: "From telling the controller to stop until it had.", kind: "timeseries", unit: "s", width: 12, height: 8,
		queries: []query{{quantile(0.99, "election_drain_seconds"), election}},
	},
	{title: "Renewals", kind: "row", width: columns, height: 1},
	{
		title: "Renewals took", says: "Acknowledged ones, from sending to the answer.", kind: "timeseries", unit: "s", width: 8, height: 8,
		queries: []query{{quantile(0.5, "election_renew_seconds"), election + ": half"}, {quantile(0.99, "election_renew_seconds"), election + ": 99 of 100"}},
	},
	{
		title: "Cover left", says: "Of what the leader has at most.", kind: "timeseries", unit: "percentunit", width: 8, height: 8, most: 1,
		queries: []query{{fmt.Sprintf("max by (%s) (%s / %s)", each, of("election_cover_left_seconds"), of("election_cover_seconds")), election}},
	},
	{
		title: "Requests that were not answered ok", says: "For the lock, a second.", kind: "timeseries", unit: "reqps", width: 8, height: 8,
		queries: []query{{fmt.Sprintf("sum by (%s, verb, result) (rate(%s[$__rate_interval]))", each, of("election_requests_total", `result!="ok"`)), election + ": {{verb}}, {{result}}"}},
	},
	{title: "Gate and fence", kind: "row", width: columns, height: 1},
	{
		title: "Refused writes", says: "By gate and fence, a second.", kind: "timeseries", unit: "wps", width: 8, height: 8,
		queries: []query{{fmt.Sprintf("sum by (%s, by) (rate(%s[$__rate_interval]))", each, of("election_refused_writes_total")), election + ": {{by}}"}},
	},
	{
		title: "Admitted writes", says: "That the gate let through, a second.", kind: "timeseries", unit: "wps", width: 8, height: 8,
		queries: []query{{fmt.Sprintf("sum by (%s) (rate(%s[$__rate_interval]))", each, of("election_admitted_writes_total")), election}},
	},
	{
		title: "Fences", says: "By the least of what the processes have found.", kind: "state-timeline", width: 8, height: 8, states: standing,
		queries: []query{{fmt.Sprintf("min by (%s) (%s)", each, of("fence_in_effect")), election}},
	},
	{
		title: "Who could lead", says: "Processes that take part, are warm and are fit, by revision.", kind: "timeseries", width: columns, height: 8,
		queries: []query{{fmt.Sprintf("sum by (%s, revision) (%s)", each, of("election_candidate")), election + ": {{revision}}"}},
	},
}
