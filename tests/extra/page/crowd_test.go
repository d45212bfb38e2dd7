package page

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/page"
)

// crowd is the source of a page: elections whose leaders renew and change.
type crowd struct {
	mu  sync.Mutex
	all []inspect.Election
	// until has the end of each validity.
	until []time.Time
	// gone is the election that was removed last. goneUntil is the end of its validity.
	gone      inspect.Election
	goneUntil time.Time
	// past has the earlier leaders of the elections, by name.
	past    map[string][]page.Change
	changed chan struct{}
}

// A leader of the crowd renews crowdRenew after its previous renewal.
const (
	crowdValidity = 15 * time.Second
	crowdRenew    = 7500 * time.Millisecond
)

func newCrowd(n int) *crowd {
	c := &crowd{past: map[string][]page.Change{}, changed: make(chan struct{}, 1)}
	for i := range n {
		name := fmt.Sprintf("election-%03d", i)
		c.all = append(c.all, inspect.Election{
			Namespace: "istio-system", Name: name, Lock: inspect.Lease, State: inspect.Leads, Holder: "pilot-stable", Key: "stable", Revision: "stable",
			HandsOver: true, Ranked: true, LeaseSeconds: 30,
			Candidates: []inspect.Candidate{{Identity: "pilot-stable", Key: "stable", Warm: true, Fit: true}, {Identity: "pilot-canary", Key: "canary", Warm: true, Fit: true}},
			Process: &inspect.Process{
				Status: leaderelection.Status{
					ElectionID: name, Validity: crowdValidity, Status: k8sleaderelection.Status{Phase: "leading", Leading: true, Acting: true},
				},
				Gate: "open", Fence: &fence.State{InEffect: true, Answer: fence.Admitted},
			},
		})
		// A process that leads many elections spreads its renewals.
		c.until = append(c.until, time.Now().Add(crowdValidity-crowdRenew*time.Duration(i)/time.Duration(n)))
	}
	return c
}

func (c *crowd) state() page.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.all {
		for time.Until(c.until[i]) <= crowdValidity-crowdRenew {
			c.until[i] = c.until[i].Add(crowdRenew)
		}
		process := *c.all[i].Process // a frame of the page has the old one
		process.ValidUntil = c.until[i]
		c.all[i].Process = &process
	}
	return page.State{Identity: "pilot-stable", Revision: "stable", Default: k8sleaderelection.DefaultRevision{Revision: "stable", Synced: true}, Elections: slices.Clone(c.all)}
}

// edit changes the crowd and wakes the page.
func (c *crowd) edit(change func()) {
	c.mu.Lock()
	change()
	c.mu.Unlock()
	select {
	case c.changed <- struct{}{}:
	default: // a wake-up is pending
	}
}

// move changes the leaders of elections.
func (c *crowd) move(elections ...int) {
	c.edit(func() {
		for _, i := range elections {
			e := &c.all[i%len(c.all)]
			e.Transitions++
			e.Holder, e.Key, e.Revision = "pilot-canary", "canary", "canary"
			if e.Transitions%2 == 0 {
				e.Holder, e.Key, e.Revision = "pilot-stable", "stable", "stable"
			}
			process := *e.Process
			process.Leading = e.Holder == "pilot-stable"
			e.Process = &process
		}
	})
}

func (c *crowd) drop(i int) {
	c.edit(func() {
		c.gone, c.goneUntil = c.all[i], c.until[i]
		c.all, c.until = slices.Delete(c.all, i, i+1), slices.Delete(c.until, i, i+1)
	})
}

// back inserts the election that was removed last at the front.
func (c *crowd) back() {
	c.edit(func() {
		c.all, c.until = slices.Insert(c.all, 0, c.gone), slices.Insert(c.until, 0, c.goneUntil)
	})
}

// present serves the page until the test ends. Open tabs after present, so that they close before the server stops. A tab
// that is open when its server stops reports an error.
func (c *crowd) present(t testing.TB) (address string) {
	t.Helper()
	p := page.New(page.Config{Source: c.state, Changed: c.changed})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	for _, e := range c.state().Elections {
		if err := p.Record(ctx, e, c.past[e.Name]); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(p.Handler())
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		server.CloseClientConnections()
		server.Close()
	})
	harness.Until(t, "the page has a state", func() bool {
		answer := httptest.NewRecorder()
		p.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "http://localhost"+page.Path, nil))
		return answer.Code == http.StatusOK
	})
	return server.URL + page.Path
}
