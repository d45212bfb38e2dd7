package k8sleaderelection

import (
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// passOf returns a pass from one state to the next, one second after the origin of the clock. acknowledged is the
// operation that it sees confirmed.
func passOf(before, after core.State, acknowledged core.Op) *change {
	c := &change{in: core.Input{Now: core.ClockReading{Mono: core.Instant(time.Second)}}, before: before, after: after}
	c.before.Flight = core.Call{Op: core.Renew, Sent: core.ClockReading{Mono: 300}}
	if acknowledged != core.NoOp {
		c.in.Kind = core.Replied
		c.in.Result = core.OK
		c.in.Snap.Version = 1
		c.before.Flight.Op = acknowledged
	}
	return c
}

func TestHandoverDuration(t *testing.T) {
	following := core.State{Phase: core.Following}
	requesting := core.State{Phase: core.Following, Handover: core.Handover{Requesting: core.Requests{Wanted: true}}}
	settling := core.State{Phase: core.Settling}
	leading := core.State{Phase: core.Leading}
	handingOver := core.State{Phase: core.Draining, Leadership: core.Leadership{Drain: core.Drain{HandOver: true}}}
	draining := core.State{Phase: core.Draining}
	requested := func(since core.Instant) durations { return durations{requestedSince: since} }
	given := func(since core.Instant) durations { return durations{handingOverSince: since} }
	for name, c := range map[string]struct {
		change    *change
		claim     core.Reason
		was, want durations
		reported  []string
	}{
		"requested":                {passOf(following, requesting, core.SendRequest), "", durations{}, requested(300), nil},
		"requested again":          {passOf(requesting, requesting, core.SendRequest), "", requested(100), requested(100), nil},
		"requested, not wanted":    {passOf(requesting, following, core.SendRequest), "", durations{}, requested(300), nil},
		"waiting":                  {passOf(requesting, requesting, core.NoOp), "", requested(100), requested(100), nil},
		"not wanted":               {passOf(requesting, following, core.NoOp), "", requested(100), durations{}, nil},
		"settling":                 {passOf(requesting, settling, core.NoOp), "", requested(100), requested(100), nil},
		"leading, nominated":       {passOf(settling, leading, core.NoOp), core.Nominated, requested(core.Instant(time.Second / 2)), durations{}, []string{"duration e handover 500ms"}},
		"leading, expired":         {passOf(settling, leading, core.NoOp), core.Expired, requested(100), durations{}, nil},
		"settling, nominated":      {passOf(settling, settling, core.NoOp), core.Nominated, requested(100), requested(100), nil},
		"accepted":                 {passOf(leading, handingOver, core.NoOp), "", durations{}, given(core.Instant(time.Second)), nil},
		"handing over":             {passOf(handingOver, handingOver, core.NoOp), "", given(100), given(100), nil},
		"draining":                 {passOf(leading, draining, core.NoOp), "", durations{}, durations{}, nil},
		"handed over":              {passOf(handingOver, following, core.HandOver), "", given(core.Instant(time.Second / 4)), durations{}, []string{"duration e handover-given 750ms"}},
		"lost while handing over":  {passOf(handingOver, following, core.NoOp), "", given(100), durations{}, nil},
		"withdrawn while draining": {passOf(handingOver, draining, core.NoOp), "", given(100), given(100), nil},
	} {
		r, o, _ := reporting(t)
		r.claim = c.claim
		s := c.was
		s.handover(r, c.change)
		if s != c.want {
			t.Errorf("%s: %+v, want %+v", name, s, c.want)
		}
		o.wants(t, name, c.reported...)
	}
}

func TestLeaderlessSince(t *testing.T) {
	r, o, _ := reporting(t)
	const seen = core.Instant(1000)
	const now = core.Instant(1 << 60)
	expired := seen.After(40 * time.Second)
	for name, c := range map[string]struct {
		exists    bool
		now, want core.Instant
	}{"held": {true, expired - 1, 0}, "expired": {true, now, expired}, "absent": {false, now, now}} {
		s := core.State{Sight: core.Sight{Known: core.Current, Since: core.Since{Record: seen}, Snap: core.Snapshot{
			Exists: c.exists, Content: record.Readable, Record: core.Record{Holder: "x", Lease: 40 * time.Second},
		}}}
		if got := r.leaderlessSince(&change{in: core.Input{Now: core.ClockReading{Mono: c.now}}, after: s}); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	// While the record is unknown, the interval continues.
	s := durations{leaderlessSince: 1}
	if s.pass(r, &change{in: core.Input{Now: core.ClockReading{Mono: now}}}); s.leaderlessSince != 1 {
		t.Errorf("leaderless since %d", s.leaderlessSince)
	}
	o.wants(t, "unknown record")
}
