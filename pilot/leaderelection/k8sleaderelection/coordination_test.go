package k8sleaderelection

import (
	"strings"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// Each disagreement of lock and elector is logged once, and its end once.
func TestReportCoordination(t *testing.T) {
	state := func(strategy, absent bool) core.State {
		return core.State{
			Sight: core.Sight{Known: core.Current, Snap: core.Snapshot{
				Exists: true, Content: record.Readable, Strategy: strategy, Record: core.Record{Holder: "a", Lease: time.Minute},
			}},
			Coordination: core.Coordination{Absent: absent},
		}
	}
	plain, coordinated, alone := state(false, false), state(true, false), state(true, true)
	for name, c := range map[string]struct {
		coordinated bool
		states      []core.State
		want        []string
	}{
		"uncoordinated elector": {false, []core.State{coordinated, plain}, []string{"lock is coordinated and this elector is not", "lock is no longer coordinated"}},
		"coordinator absent":    {true, []core.State{alone, coordinated}, []string{"no coordinator chooses the leader", "coordinator chooses the leader again"}},
		"strategy removed":      {true, []core.State{coordinated, plain, coordinated}, []string{"strategy was removed from the lock", "lock has a strategy again"}},
	} {
		r, _, log := reporting(t)
		r.core.Coordinated = c.coordinated
		var before core.State
		for _, after := range c.states {
			for range 2 {
				r.pass(&change{before: before, after: after})
				before = after
			}
		}
		if strings.Count(log.String(), "\n") != len(c.want) {
			t.Errorf("%s:\n%s", name, log)
		}
		for _, want := range c.want {
			if strings.Count(log.String(), want) != 1 {
				t.Errorf("%s: want once %q:\n%s", name, want, log)
			}
		}
	}
}
