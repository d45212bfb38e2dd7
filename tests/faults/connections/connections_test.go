package connections

import (
	"fmt"
	"os"
	"strconv"
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

func TestTermsLostByDeadConnections(t *testing.T) {
	t.Parallel()
	times := 4
	if s := os.Getenv("DEAD_CONNECTIONS"); s != "" {
		var err error
		if times, err = strconv.Atoi(s); err != nil || times <= 0 {
			t.Fatalf("DEAD_CONNECTIONS=%s: give a number of runs", s)
		}
	}
	var all tally
	t.Run("", func(t *testing.T) { // waits for all of them
		for i := range times {
			timing := []timing{istio, clientGo, brisk}[i%3]
			t.Run(fmt.Sprintf("%v", timing.lease), func(t *testing.T) {
				t.Parallel()
				all.kill(t, timing)
			})
		}
	})
	t.Logf("figure: %d dead connections cost %d terms; the work's longest write took %v; %d runs were repeated, because the API server itself took longer than %v to answer",
		all.runs, all.lost, all.longest.Round(time.Millisecond), all.repeated, prompt)
}

// prompt is the longest response time of the API server without a relay. A slower response shows that the machine is overloaded.
const prompt = time.Second

// tally counts the results of dead connections.
type tally struct {
	mu                   sync.Mutex
	runs, lost, repeated int
	longest              time.Duration
}

// kill has one leader's connections die. A term that is lost while the API server answers
// a run without a leader is repeated, at most twice
func (a *tally) kill(t *testing.T, timing timing) {
	for tries := 1; ; tries++ {
		d := enter(t, cluster.Shared(t), timing)
		d.lead(t)
		d.relay.Present(relay.Silent)
		problem := d.carriesOn(t, 2, 2)
		took, _ := d.worst()
		a.mu.Lock()
		if problem != "" && d.slowest > prompt && tries < 3 {
			a.repeated++
			a.mu.Unlock()
			t.Logf("%s; a direct request took %v", problem, d.slowest)
			continue
		}
		a.runs++
		a.longest = max(a.longest, took)
		if problem != "" {
			a.lost++
			t.Error(problem)
		}
		a.mu.Unlock()
		return
	}
}
