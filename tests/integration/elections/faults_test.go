package elections

import (
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/lives"
	"incumbent.dev/incumbent/internal/testutil/relay"
	"incumbent.dev/incumbent/pilot/leaderelection"
)

// A leader continues its term while some of its connections fail.
func TestConnections_SomeFail(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*relay.Relay){
		"silent":                 func(r *relay.Relay) { r.Present(relay.Silent) },
		"half-open, up lost":     func(r *relay.Relay) { r.Present(relay.Fate{Up: relay.Flow{Vanish: true}}) },
		"half-open, down lost":   func(r *relay.Relay) { r.Present(relay.Fate{Down: relay.Flow{Vanish: true}}) },
		"stalled":                func(r *relay.Relay) { r.Present(relay.Stalled) },
		"reset":                  (*relay.Relay).Reset,
		"cut in mid-body":        func(r *relay.Relay) { r.Present(relay.Fate{Down: relay.Flow{CutAfter: 150}}) },
		"new connections silent": func(r *relay.Relay) { r.Coming(relay.Silent) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t, leaderelection.LockTypeLease).worker("a").lead(t)
			fail(w.relay)
			w.continues(t, 3)
			t.Logf("figure: connections %s: the longest write took %v; %d connections", name, time.Duration(w.longest.Load()).Round(time.Millisecond), w.relay.Made())
		})
	}
}

// A leader that no API server answers stops before another candidate leads.
func TestConnections_AllFail(t *testing.T) {
	t.Parallel()
	x := newFixture(t, leaderelection.LockTypeLease)
	a := x.worker("a").lead(t)
	b := x.candidate("b", "stable").start(t)
	harness.Until(t, "b follows", b.follows("a"))
	a.relay.All(relay.Silent)
	harness.Until(t, "b leads", b.Live)
	if err := a.Gate().Check(); err == nil || a.Live() || a.IsLeader() {
		t.Errorf("a leads %v, its gate returns %v", a.IsLeader(), err)
	}
	a.relay.Coming(relay.Fate{})
	harness.Until(t, "a follows", a.follows("b"))
	lives.Apart(t, a.candidate, b)
}
