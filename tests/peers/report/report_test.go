package report

import (
	"os"
	"strings"
	"testing"
	"time"
)

// The timings of the sample.
const (
	istioTiming      = "30/15/7.5"
	kubernetesTiming = "15/10/2"
)

func sample() *Results {
	times := func(ms ...float64) []float64 { return ms }
	return &Results{Scenarios: map[string]*Scenario{
		Graceful: {
			Began: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Versions: map[string]string{Ours: "abc"},
			Series: []Series{
				{Library: Ours, Timing: istioTiming, Millis: times(8, 5, 6), Overlap: times(0, 0, 0)},
				{Library: Istio, Timing: istioTiming, Millis: times(6000, 900, 12000), Overlap: times(0, 3, 0)},
				{Library: Limit, Millis: times(2, 3, 4)},
				{Library: ClientGo, Timing: kubernetesTiming, Lost: 2},
			},
		},
		Requests: {Loads: []Load{
			{Library: Ours, Timing: istioTiming, Role: Leader, PerMinute: map[string]float64{"update leases": 8}, CPU: 2},
			{Library: Ours, Timing: istioTiming, Role: Follower, CPU: 1},
			{Library: Istio, Timing: istioTiming, Role: Leader, PerMinute: map[string]float64{"update leases": 8, "get leases": 8}, CPU: 4},
			{Library: Istio, Timing: istioTiming, Role: Follower, PerMinute: map[string]float64{"get leases": 5}, CPU: 0.5},
		}},
		Scale: {Sizes: []Size{
			{Library: Ours, Role: Leader, Elections: 1000, HeapKiB: 17, Goroutines: 3, PerSecond: 133},
		}},
	}}
}

func TestSpread(t *testing.T) {
	var values []float64
	for i := 1000; i > 0; i-- {
		values = append(values, float64(i))
	}
	if d := SpreadOf(values); d != (Spread{Median: 500, P99: 990}) {
		t.Errorf("%+v", d)
	}
	if d := SpreadOf([]float64{3, 1}); d.Median != 1 || d.P99 != 3 {
		t.Errorf("%+v", d)
	}
	if d := SpreadOf(nil); d != (Spread{}) {
		t.Errorf("%+v", d)
	}
}

func TestTables(t *testing.T) {
	r := sample()
	for row, table := range map[string]string{
		"| graceful handover | incumbent | 30/15/7.5 | 6.00 ms | 8.00 ms | 1.00× | 0 of 3 |":            r.Times(),
		"| graceful handover | Istio | 30/15/7.5 | 6.00 s | 12.0 s | 1000× | 1 of 3, at most 3.00 ms |": r.Times(),
		"| graceful handover | limit |  | 3.00 ms | 4.00 ms | 0.50× | – |":                              r.Times(),
		"| Istio | 30/15/7.5 | 21.0 | 4.00 | 0.50 |":                                                    r.Requests(),
		"| leader | incumbent | 17.0 KiB | 3.00 | 133 |":                                                r.Scale(),
		"Measured 2026-01-02, ; incumbent abc.":                                                         (&Results{Scenarios: map[string]*Scenario{Graceful: r.Scenarios[Graceful]}}).Provenance(),
	} {
		if !strings.Contains(table, row) {
			t.Errorf("missing %q in\n%s", row, table)
		}
	}
}

func TestPage_UpToDate(t *testing.T) {
	r, err := Read("../results/latest.json")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	if want, err := r.Page(string(page)); err != nil || want != string(page) {
		t.Errorf("docs/benchmarks.md differs from results/latest.json (%v). Run `make bench ARGS=-render`.", err)
	}
}

func TestPage_MissingPart(t *testing.T) {
	if _, err := sample().Page("<!-- generated: times -->\n<!-- end -->"); err == nil {
		t.Error("a page without all generated parts was accepted")
	}
}
