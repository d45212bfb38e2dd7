package page

import (
	"context"
	_ "embed" // for the script that measures inside the page
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// BenchmarkChangeVisible measures the time from a change of the leader until the page shows the new leader.
func BenchmarkChangeVisible(b *testing.B) {
	c, browser := newCrowd(2), newBrowser(b)
	tab := open(b, browser, c.present(b), desk)
	until(b, tab, "the page is live", settled)
	ask[int](b, tab, `(() => {
		window.seen = {};
		new MutationObserver(() => { const l = `+leader+`; window.seen[l] ??= performance.timeOrigin + performance.now(); })
			.observe(document.body, { subtree: true, childList: true, characterData: true });
		return 0;
	})()`)
	var took []float64
	for i := range b.N {
		ask[int](b, tab, `(window.seen = {}, 0)`)
		at := time.Now()
		c.move(0)
		next := []string{"pilot-canary", "pilot-stable"}[i%2]
		until(b, tab, "the page shows it", fmt.Sprintf(`window.seen[%q] > 0`, next))
		took = append(took, ask[float64](b, tab, fmt.Sprintf(`window.seen[%q]`, next))-float64(at.UnixMicro())/1000)
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2], "ms/median")
	b.ReportMetric(took[len(took)-1], "ms/max")
	b.ReportMetric(0, "ns/op")
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
		c := newCrowd(200)
		tab := open(b, browser, c.present(b), desk)
		until(b, tab, "the page is live", settled)
		ask[int](b, tab, frames)
		tick := time.NewTicker(100 * time.Millisecond)
		for i := range int(framesMeasured / (100 * time.Millisecond)) {
			<-tick.C
			c.move(i * 7)
		}
		tick.Stop()
		figures := ask[map[string]float64](b, tab, `window.figures()`)
		for _, unit := range []string{"frames", "morphs", "over50ms", "longest-frame-ms", "stalls", "longest-stall-ms"} {
			b.ReportMetric(figures[unit], unit)
		}
	}
	b.ReportMetric(0, "ns/op")
}

const (
	pagesOpen   = 100
	cpuMeasured = 20 * time.Second
)

// BenchmarkOpenPages measures the CPU time of a page with 10 elections, in percent of one core, without readers and with a
// hundred. The figure includes the readers, which are in the same process.
func BenchmarkOpenPages(b *testing.B) {
	page := newCrowd(10).present(b)
	for range b.N {
		without := share(b)
		var events atomic.Int64
		end := readers(b, page+"/events", &events)
		harness.Until(b, "all streams received a frame", func() bool { return events.Load() >= pagesOpen })
		before := events.Load()
		with := share(b)
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

// share measures the CPU time of this process, in percent of one core.
func share(b *testing.B) float64 {
	used := func() time.Duration {
		var all syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &all); err != nil {
			b.Fatal(err)
		}
		return time.Duration(all.Utime.Nano() + all.Stime.Nano())
	}
	before := used()
	time.Sleep(cpuMeasured)
	return 100 * (used() - before).Seconds() / cpuMeasured.Seconds()
}
