package page

import (
	_ "embed" // for the script that measures inside the page
	"fmt"
	"slices"
	"testing"
	"time"
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
