package connections

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/relay"
	"incumbent.dev/incumbent/tests/cluster"
)

func TestConnections_OpenOnesFail(t *testing.T) {
	for name, fail := range map[string]func(*relay.Relay){
		"silent":               func(r *relay.Relay) { r.Present(relay.Silent) },
		"half-open, up lost":   func(r *relay.Relay) { r.Present(relay.Fate{Up: relay.Flow{Vanish: true}}) },
		"half-open, down lost": func(r *relay.Relay) { r.Present(relay.Fate{Down: relay.Flow{Vanish: true}}) },
		"stalled": func(r *relay.Relay) {
			r.Present(relay.Fate{Up: relay.Flow{Stall: true}, Down: relay.Flow{Stall: true}})
		},
		"reset":           (*relay.Relay).Reset,
		"cut in mid-body": func(r *relay.Relay) { r.Present(relay.Fate{Down: relay.Flow{CutAfter: 150}}) },
		"slow":            func(r *relay.Relay) { r.Present(slow); r.Coming(slow) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := enter(t, cluster.Shared(t), clientGo)
			d.lead(t)
			fail(d.relay)
			d.goesOn(t, 3, 5)
			longest, _ := d.worst()
			t.Logf("figure: connections %s: the work's longest write took %v; %d connections in all", name, longest.Round(time.Millisecond), d.relay.Made())
		})
	}
}

var slow = relay.Fate{Up: relay.Flow{Delay: 100 * time.Millisecond}, Down: relay.Flow{Delay: 100 * time.Millisecond}}

func TestConnections_NewOnesFail(t *testing.T) {
	t.Parallel()
	d := enter(t, cluster.Shared(t), clientGo)
	d.lead(t)
	d.relay.Coming(relay.Silent)
	d.goesOn(t, 3, 5)
}

func TestConnections_AllFail(t *testing.T) {
	t.Parallel()
	d := enter(t, cluster.Shared(t), brisk)
	d.lead(t)
	d.relay.Present(relay.Silent)
	d.relay.Coming(relay.Silent)
	eventually(t, "it stops", func() bool { return !d.IsLeader() && d.Status().Token == "" })
	if err := d.Gate().Check(); err == nil {
		t.Error("its gate is open")
	}
	d.relay.Coming(relay.Fate{})
	before, _ := d.counts()
	eventually(t, "it leads again", func() bool { terms, _ := d.counts(); return terms > before && d.IsLeader() })
	d.goesOn(t, 1, 5)
}

func TestConnections_BalancerWithStoppedServer(t *testing.T) {
	t.Parallel()
	c, err := cluster.Start(t.Context(), cluster.Options{WithoutControllers: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	second, err := c.AddAPIServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	third, err := c.AddAPIServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The admin's requests go to the first one, which lives.
	var all []*candidate
	for i, timing := range []timing{clientGo, istio, brisk} {
		all = append(all, enterIn(t, c, c.Namespace(t), fmt.Sprintf("pilot-%d", i), timing, second.URL(), third.URL(), c.URL()))
	}
	for _, d := range all {
		d.lead(t)
	}
	for _, stopped := range []*cluster.APIServer{second, third} {
		if err := stopped.Pause(); err != nil {
			t.Fatal(err)
		}
		var each sync.WaitGroup
		for _, d := range all {
			each.Go(func() { d.goesOn(t, 3, 5) })
		}
		each.Wait()
		if err := stopped.Resume(); err != nil {
			t.Fatal(err)
		}
	}
}
