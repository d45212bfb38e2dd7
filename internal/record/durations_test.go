package record

import (
	"math"
	"strings"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/golden"
)

// Each duration on a lock has a limit. The table is a part of docs/safety.md.
func TestDurations(t *testing.T) {
	const own, second = 30 * time.Second, time.Second
	held := Snapshot{Exists: true, Content: Readable, Record: Record{Holder: "a", Lease: own, Transitions: 3}}
	with := func(change func(*Snapshot)) Snapshot {
		s := held
		change(&s)
		return s
	}
	inSeconds := func(d time.Duration) int { return int(d / time.Second) }
	var table strings.Builder
	table.WriteString("| duration | counts at most | reported | effect |\n| --- | --- | --- | --- |\n")
	for _, c := range []struct {
		name    string
		set     func(s *Snapshot, d time.Duration)
		counts  func(s Snapshot) time.Duration
		most    time.Duration
		longest time.Duration // without a report
		inWords [2]string
		effect  string
	}{
		{
			LeaseDuration, func(s *Snapshot, d time.Duration) { s.Record.Lease = d },
			func(s Snapshot) time.Duration { return LongerLease(own, s.Record.Lease) }, time.Hour, 10 * own,
			[2]string{"an hour, or ten own leases if longer", "above ten own leases"},
			"no candidate acquires the lock while the record remains unchanged. A nominee has a RetryPeriod",
		},
		{
			"`seconds` of a request", func(s *Snapshot, d time.Duration) {
				s.Annotations.Request = Request{Identity: "b", Holder: "a", Transitions: 3, Seconds: inSeconds(d)}
			},
			func(s Snapshot) time.Duration { return RequestTime(s.Annotations.Request.Seconds) }, time.Hour, time.Hour,
			[2]string{"an hour", "above"}, "a challenger of equal rank writes no request",
		},
		{
			"`holdSeconds` of a request", func(s *Snapshot, d time.Duration) {
				s.Annotations.Request = Request{Reason: ForOperator, Holder: "a", Transitions: 3, HoldSeconds: inSeconds(d)}
			},
			func(s Snapshot) time.Duration { return HoldTime(s.Annotations.Request.HoldSeconds) }, MaxHold, MaxHold,
			[2]string{"7 days", "above"}, "as a hold, or the cool-down of a step-down, which ends when the lock was free for a lease",
		},
		{
			"`seconds` of a hold", func(s *Snapshot, d time.Duration) {
				s.Annotations.Hold = Hold{Holder: "a", Transitions: 3, Seconds: inSeconds(d)}
			},
			func(s Snapshot) time.Duration { return HoldTime(s.Annotations.Hold.Seconds) }, MaxHold, MaxHold,
			[2]string{"7 days", "above"}, "rank does not count in the term of the hold",
		},
		{
			"release of a witness", func(s *Snapshot, d time.Duration) {
				s.Record.Holder = ""
				s.Annotations.Witness = WitnessRelease{Identity: "a", Transitions: 3, After: max(d, 0)}
			},
			func(s Snapshot) time.Duration { return s.WitnessRelease() }, 0, time.Hour, [2]string{"an hour", "above"}, "a metric. Above an hour it does not count",
		},
	} {
		for _, d := range []time.Duration{c.longest, c.longest + second, 100 * 365 * 24 * time.Hour, math.MaxInt64 / second * second} {
			s := with(func(s *Snapshot) { c.set(s, d) })
			long := s.LongDurations(own)
			if reported := len(long) == 1 && long[0].Recorded >= min(d, 4e18) && strings.Contains(long[0].Report(&s, "kubectl"), "kubectl"); reported != (d > c.longest) || len(long) > 1 {
				t.Errorf("%s %v: reported %+v", c.name, d, long)
			}
			if counts := c.counts(s); d > max(c.most, c.longest) && counts != c.most || len(long) == 1 && long[0].Counts != counts {
				t.Errorf("%s %v: counts for %v, reported %+v, want at most %v", c.name, d, counts, long, c.most)
			}
		}
		for _, d := range []time.Duration{-second, 0} {
			s := with(func(s *Snapshot) { c.set(s, d) })
			if len(s.LongDurations(own)) > 0 || c.counts(s) < 0 {
				t.Errorf("%s %v: counts for %v", c.name, d, c.counts(s))
			}
		}
		table.WriteString("| " + strings.Join([]string{c.name, c.inWords[0], c.inWords[1], c.effect}, " | ") + " |\n")
	}
	for _, row := range [][]string{ // tested in the packages that read them
		{"lease of a former leader", "the lease that it recorded with its marker. If the candidate has not seen that record, an own lease", "–", "the next holder settles. The lease of the record that overwrote the leader does not count"},
		{"lease of a former holder without a marker", "an own lease and `PeerGrace`", "–", "the next holder settles"},
		{"lease of a member", "15 minutes", "above", "the member Lease is invalid, so the tools do not show the candidate as alive"},
		{"lease of a registered term", "an hour", "–", "the witness retries the release"},
		{"grace of a registered term", "a minute", "–", "the witness waits before the release"},
	} {
		table.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	golden.Section(t, "../../docs/safety.md", "<!-- begin of the table of durations -->\n\n", "\n<!-- end of the table of durations -->", table.String())
	free := with(func(s *Snapshot) { s.Record.Holder = "" })
	if long := free.LongDurations(own); len(long) > 0 {
		t.Errorf("a free lock: %+v", long)
	}
}
