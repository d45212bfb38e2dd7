package page

import (
	"context"
	_ "embed" // for the script that measures inside the page
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/debug"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// BenchmarkFlipVisible measures the time from the watch event with a new holder until the page shows the holder.
func BenchmarkFlipVisible(b *testing.B) {
	p, browser := newPlane(b), newBrowser(b)
	tab := open(b, browser, p.pages["stable"], desk)
	until(b, tab, "the page is live", settled)
	ask[int](b, tab, `(() => {
		window.seen = {};
		new MutationObserver(() => { const l = `+leader+`; window.seen[l] ??= performance.timeOrigin + performance.now(); })
			.observe(document.body, { subtree: true, childList: true, characterData: true });
		return 0;
	})()`)
	watch, err := p.kube.CoordinationV1().Leases(p.home).Watch(b.Context(), metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", watched).String()})
	if err != nil {
		b.Fatal(err)
	}
	defer watch.Stop()
	var took []float64
	for i := range b.N {
		revision := revisions[(i+1)%2]
		ask[int](b, tab, `(window.seen = {}, 0)`)
		changed := make(chan time.Time, 1)
		go func() {
			for event := range watch.ResultChan() {
				if holds(event.Object, "pilot-"+revision) {
					changed <- time.Now()
					return
				}
			}
		}()
		p.flip(b, revision)
		at := <-changed
		until(b, tab, "the page shows it", fmt.Sprintf(`window.seen[%q] > 0`, "pilot-"+revision))
		shown := ask[float64](b, tab, fmt.Sprintf(`window.seen[%q]`, "pilot-"+revision))
		took = append(took, shown-float64(at.UnixMicro())/1000)
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2], "ms/median")
	b.ReportMetric(took[len(took)-1], "ms/max")
	b.ReportMetric(0, "ns/op")
}

// crowd is a set of elections. Their leaders change one after the other.
type crowd struct {
	mu  sync.Mutex
	all []debug.Election
	// until has the end of each validity.
	until []time.Time
	// gone is the election that was removed last. goneUntil is the end of its validity.
	gone      debug.Election
	goneUntil time.Time
}

// A leader of the crowd renews crowdRenew after its previous renewal.
const (
	crowdValidity = 15 * time.Second
	crowdRenew    = 7500 * time.Millisecond
)

func newCrowd(n int) *crowd {
	c := &crowd{}
	for i := range n {
		name := fmt.Sprintf("election-%03d", i)
		c.all = append(c.all, debug.Election{
			ID: name, Namespace: "istio-system", Lock: name, Kind: "Lease", Leader: "pilot-stable", Key: "stable", Acting: true, HandsOver: true,
			Ranked: true, LeaseSeconds: 30, Phase: "leading", Leading: true, Validity: crowdValidity, Gate: "open", Fence: "in effect",
			Candidates: []inspect.Candidate{{Identity: "pilot-stable", Key: "stable", Warm: true, Fit: true}, {Identity: "pilot-canary", Key: "canary", Warm: true, Fit: true}},
		})
		// A process that leads many elections spreads its renewals.
		c.until = append(c.until, time.Now().Add(crowdValidity-crowdRenew*time.Duration(i)/time.Duration(n)))
	}
	return c
}

func (c *crowd) state() debug.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.all {
		for time.Until(c.until[i]) <= crowdValidity-crowdRenew {
			c.until[i] = c.until[i].Add(crowdRenew)
		}
		c.all[i].ValidityLeft = time.Until(c.until[i])
	}
	return debug.State{Identity: "pilot-stable", Revision: "stable", Default: k8sleaderelection.DefaultRevision{Revision: "stable", Synced: true}, Elections: slices.Clone(c.all)}
}

func (c *crowd) move(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := &c.all[i%len(c.all)]
	e.Transitions++
	e.Leader, e.Key = "pilot-canary", "canary"
	if e.Transitions%2 == 0 {
		e.Leader, e.Key = "pilot-stable", "stable"
	}
	e.Leading = e.Leader == "pilot-stable"
}

func (c *crowd) drop(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone, c.goneUntil = c.all[i], c.until[i]
	c.all, c.until = slices.Delete(c.all, i, i+1), slices.Delete(c.until, i, i+1)
}

// back inserts the election that was removed last at the front.
func (c *crowd) back() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all, c.until = slices.Insert(c.all, 0, c.gone), slices.Insert(c.until, 0, c.goneUntil)
}

// framesMeasured is the duration of a measurement.
const framesMeasured = 10 * time.Second

// frames is a script that counts the frames of the page and the tasks that delayed them.
//
//go:embed testdata/frames.js
var frames string

// BenchmarkFrames measures a page with 200 elections and ten changes per second. Stalls are tasks of the page that take
// more than 50 ms.
func BenchmarkFrames(b *testing.B) {
	browser := newBrowser(b)
	for range b.N {
		c, changed := newCrowd(200), make(chan struct{}, 1)
		address := present(b, c, changed)
		tab := open(b, browser, address, desk)
		until(b, tab, "the page is live", settled)
		ask[int](b, tab, frames)
		done := time.After(framesMeasured)
		tick := time.NewTicker(100 * time.Millisecond)
		for i := 0; ; i++ {
			select {
			case <-tick.C:
				c.move(i * 7)
				select {
				case changed <- struct{}{}:
				default:
				}
				continue
			case <-done:
			}
			break
		}
		tick.Stop()
		figures := ask[map[string]float64](b, tab, `window.figures()`)
		for _, unit := range []string{"frames", "morphs", "over50ms", "longest-frame-ms", "stalls", "longest-stall-ms"} {
			b.ReportMetric(figures[unit], unit)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// present serves a separate page until the test ends. Open tabs after present, so that they close before the server stops.
// A tab that is open when its server stops reports an error.
func present(b testing.TB, c *crowd, changed <-chan struct{}) string {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	page, err := debug.New(debug.Config{Source: c.state, Changed: changed, Address: listener.Addr().String()})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(b.Context()))
	ended := make(chan error, 1)
	go func() { ended <- page.Run(ctx) }()
	server := &http.Server{Handler: page.Handler(), ReadHeaderTimeout: patience}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	b.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
		_ = server.Close()
		<-served
	})
	return "http://" + listener.Addr().String() + debug.Path
}

const (
	pagesOpen   = 100
	cpuMeasured = 20 * time.Second
)

// BenchmarkOpenPages measures the CPU time of a leader in a separate process, without open pages and with a hundred, in
// percent of one core.
func BenchmarkOpenPages(b *testing.B) {
	p := emptyPlane(b)
	process, page := startServer(b, p.home)
	p.leads(b, watched, "pilot-stable")
	for range b.N {
		without := share(b, process.PID())
		var events atomic.Int64
		end := readers(b, page+"/events", &events)
		harness.Until(b, "all streams received a frame", func() bool { return events.Load() >= pagesOpen })
		before := events.Load()
		with := share(b, process.PID())
		b.ReportMetric(without, "%cpu-without")
		b.ReportMetric(with, "%cpu-with-100")
		b.ReportMetric(float64(events.Load()-before)/cpuMeasured.Seconds()/pagesOpen, "frames/s/page")
		end()
	}
	b.ReportMetric(0, "ns/op")
}

// readers opens a hundred connections that read a stream until end is called.
func readers(b *testing.B, stream string, events *atomic.Int64) (end func()) {
	ctx, stop := context.WithCancel(b.Context())
	transport := &http.Transport{}
	var all sync.WaitGroup
	for range pagesOpen {
		all.Go(func() {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, stream, nil)
			if err != nil {
				b.Error(err)
				return
			}
			response, err := (&http.Client{Transport: transport}).Do(request)
			if err != nil {
				b.Error(err)
				return
			}
			defer response.Body.Close()
			buffer := make([]byte, 64<<10)
			for {
				n, err := response.Body.Read(buffer)
				events.Add(int64(strings.Count(string(buffer[:n]), "event: main")))
				if err != nil {
					return
				}
			}
		})
	}
	return func() {
		stop()
		all.Wait()
		transport.CloseIdleConnections()
	}
}

// share measures the CPU time of a process, in percent of one core.
func share(b *testing.B, pid int) float64 {
	before := ticks(b, pid)
	time.Sleep(cpuMeasured)
	const perSecond = 100 // Linux's USER_HZ
	return float64(ticks(b, pid)-before) / perSecond / cpuMeasured.Seconds() * 100
}

// ticks returns the CPU time that a process has used, in clock ticks.
func ticks(b *testing.B, pid int) (sum int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the program's name has no parenthesis
	for _, field := range strings.Fields(rest)[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			b.Fatal(err)
		}
		sum += n
	}
	return sum
}
