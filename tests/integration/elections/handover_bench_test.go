package elections

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

// BenchmarkHandover changes the default revision under one election and under eight, at leases of 30 s. It measures:
//
//   - handover: from sending the change to the start of the new leader's run function, without the time that the run
//     function of the old leader took to return
//   - no-leader: from the return of the old run function to the start of the new one
//   - requests/handover: requests of both processes
//
// `make bench` compares with other electors and with the bare requests.
func BenchmarkHandover(b *testing.B) {
	for _, elections := range []int{1, 8} {
		b.Run(fmt.Sprintf("elections=%d", elections), func(b *testing.B) { benchmarkHandover(b, elections) })
	}
}

func benchmarkHandover(b *testing.B, elections int) {
	x := newFixture(b, leaderelection.LockTypeLease)
	for i := range elections {
		x.locks = append(x.locks, electionName(i))
	}
	x.setDefault("stable")
	stable := x.candidates(b, "stable", elections)
	eventually(b, "stable leads all elections", func() bool { return all(stable, (*candidate).Live) })
	canary := x.candidates(b, "canary", elections)
	eventually(b, "canary follows in all elections", func() bool {
		return all(canary, func(c *candidate) bool { return c.follows("stable")() })
	})
	var handovers, gaps durations
	from := stable
	to := canary
	sent := func() int { return stable[0].transport.sent("") + canary[0].transport.sent("") }
	before := sent()
	for b.Loop() {
		changed := time.Now()
		x.setDefault(to[0].name)
		eventually(b, "all elections are handed over", func() bool { return all(to, (*candidate).Live) })
		for i := range elections {
			old := from[i].Last()
			next := to[i].Last()
			handovers = append(handovers, next.From.Sub(changed)-old.To.Sub(old.Told))
			gaps = append(gaps, next.From.Sub(old.To))
		}
		from, to = to, from
	}
	b.ReportMetric(float64(sent()-before)/float64(len(handovers)), "requests/handover")
	handovers.report(b, "handover")
	gaps.report(b, "no-leader")
	for i := range elections {
		lives.Apart(b, stable[i], canary[i])
	}
}

// candidates starts a process that takes part in several elections with one client and one default watcher.
func (x *fixture) candidates(b *testing.B, revision string, elections int) (all []*candidate) {
	b.Helper()
	first := x.candidate(revision, revision)
	watcher := x.watcher(first)
	for i := range elections {
		c := &candidate{name: revision, Recorder: &lives.Recorder{}, client: first.client, transport: first.transport}
		var err error
		c.LeaderElection, err = leaderelection.New(first.client, leaderelection.Config{
			Namespace: x.namespace, Identity: revision, ElectionID: electionName(i), Revision: revision,
			Lock: x.lock, DefaultWatcher: watcher,
		})
		if err != nil {
			b.Fatal(err)
		}
		c.AddRunContext(c.work)
		all = append(all, c.start(b))
	}
	return all
}

func all(candidates []*candidate, holds func(*candidate) bool) bool {
	return !slices.ContainsFunc(candidates, func(c *candidate) bool { return !holds(c) })
}

type durations []time.Duration

func (d durations) report(b *testing.B, name string) {
	slices.Sort(d)
	for _, quantile := range []struct {
		name  string
		share float64
	}{{"median", 0.5}, {"p99", 0.99}, {"max", 1}} {
		value := d[int(quantile.share*float64(len(d)-1))]
		b.ReportMetric(float64(value.Microseconds())/1000, name+"-"+quantile.name+"-ms")
	}
	b.ReportMetric(0, "ns/op")
}
