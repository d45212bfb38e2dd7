package report

import (
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func sample() *Results {
	times := func(ms ...float64) []float64 { return ms }
	return &Results{Scenarios: map[string]*Scenario{
		Graceful: {
			Began: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Versions: map[string]string{Ours: "abc"},
			Series: []Series{
				{Library: Ours, Timing: IstioTiming, Case: "ConfigMap", Millis: times(8, 5, 6), Overlap: times(0, 0, 0)},
				{Library: Istio, Timing: IstioTiming, Case: "ConfigMap", Millis: times(6000, 900, 12000), Overlap: times(0, 3, 0)},
				{Library: Limit, Millis: times(2, 3, 4)},
				{Library: ClientGo, Timing: KubernetesTiming, Lost: 2},
			},
		},
		Requests: {Loads: []Load{
			{Library: Ours, Timing: IstioTiming, Role: Leader, PerMinute: map[string]float64{"update leases": 8}, CPU: 2},
			{Library: Ours, Timing: IstioTiming, Role: Follower, CPU: 1},
			{Library: Istio, Timing: IstioTiming, Role: Leader, PerMinute: map[string]float64{"update leases": 8, "get leases": 8}, CPU: 4},
			{Library: Istio, Timing: IstioTiming, Role: Follower, PerMinute: map[string]float64{"get leases": 5}, CPU: 0.5},
		}},
		Scale: {Sizes: []Size{
			{Library: Ours, Role: Leader, Elections: 1000, HeapKiB: 17, Goroutines: 3, PerSecond: 133},
			{Library: Istio, Role: Leader, Elections: 1000, Failed: "too many"},
		}},
	}}
}

func TestSpread(t *testing.T) {
	var values []float64
	for i := 1000; i > 0; i-- {
		values = append(values, float64(i))
	}
	if d := SpreadOf(values); d != (Spread{N: 1000, Min: 1, Median: 500, P99: 990, Max: 1000}) {
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
	for scenario, rows := range map[string][]string{
		Graceful: {
			"| incumbent, ConfigMap | 30/15/7.5 | 3 | 5.00 ms | 6.00 ms | 8.00 ms | 8.00 ms | 1.00× | 1.00× | 0 of 3 | 0 |",
			"| Istio, ConfigMap | 30/15/7.5 | 3 | 900 ms | 6.00 s | 12.0 s | 12.0 s | 1000× | 1500× | 1 of 3 | 3.00 ms |",
			"| client-go | 15/10/2 | 0 (+2 not in time) | – |",
		},
		Requests: {
			"| Istio | 30/15/7.5 | 21.0 | 2.62× | 4.00 | 2.00× | 0.50 | 0.50× |",
			"| Istio | 30/15/7.5 | follower | 5.00 | 0.00 |",
		},
		Scale: {"| leader | 1000 | Istio: too many | – |", "| leader | 1000 | incumbent | 17.0 KiB | 0.00 KiB | 1.00× |"},
		Crash: {"Not measured"},
	} {
		text := r.Tables(scenario)
		for _, row := range rows {
			if !strings.Contains(text, row) {
				t.Errorf("%s lacks %q:\n%s", scenario, row, text)
			}
		}
	}
}

func TestGoals(t *testing.T) {
	got := map[string]Goal{}
	for _, g := range sample().Goals() {
		got[g.What] = g
	}
	for what, want := range map[string]Goal{
		"graceful handover, median: Istio ≥ 100× ours":                        {Value: "1000×", Reached: true, Measured: true},
		"graceful handover, p99: client-go at 15/10/2 ≥ 50× ours":             {Value: "–"},
		"requests per minute and election, 3 replicas at 30/15/7.5: ours ≤ 8": {Value: "8.00", Reached: true, Measured: true},
		"CPU of an idle follower: ours below Istio's at 30/15/7.5":            {Value: "2.00×", Measured: true},
		"1,000 elections as leader: heap + stacks ≤ 16 KiB each":              {Value: "17.0 KiB", Measured: true},
	} {
		g, ok := got[what]
		if !ok || g.Measured != want.Measured || want.Measured && (g.Value != want.Value || g.Reached != want.Reached) {
			t.Errorf("%s: %+v, want %+v", what, g, want)
		}
	}
}

func TestProvenance(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	whole := func() *Results {
		r := &Results{Scenarios: map[string]*Scenario{}}
		for i, name := range Scenarios {
			r.Scenarios[name] = &Scenario{
				Began: began.Add(time.Duration(i) * 101 * time.Second), Seconds: 100, Machine: "a", Versions: map[string]string{Ours: "1"},
			}
		}
		return r
	}
	for want, change := range map[string]func(r *Results){
		"All of one run":           func(*Results) {},
		"Of one run, without 1":    func(r *Results) { delete(r.Scenarios, Scale) },
		"Not of one run**: gracef": func(r *Results) { r.Scenarios[Steal].Machine = "b" },
		"with 2, on a":             func(r *Results) { r.Scenarios[Crash].Versions = map[string]string{Ours: "2"} },
		"Not of one run**":         func(r *Results) { r.Scenarios[Scale].Began = began.Add(time.Hour) },
		"; crash at":               func(r *Results) { r.Scenarios[Graceful].Began = began.Add(time.Hour) },
	} {
		r := whole()
		change(r)
		if got := r.Provenance(); !strings.Contains(got, want) {
			t.Errorf("%q does not say %q", got, want)
		}
	}
}

func TestPictureIsXMLAndShowsEachRow(t *testing.T) {
	text := sample().Picture()
	decoder := xml.NewDecoder(strings.NewReader(text))
	for {
		_, err := decoder.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"Istio, ConfigMap, 30/15/7.5", ">10 s<", ">time, log scale<", "prefers-color-scheme: dark"} {
		if !strings.Contains(text, want) {
			t.Errorf("the picture lacks %q", want)
		}
	}
}

// TestPageIsOfTheseResults: what docs show is what was measured last.
func TestPageIsOfTheseResults(t *testing.T) {
	const docs = "../../../docs"
	r, err := Read("../results/latest.json")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(docs, "benchmarks.md"))
	if err != nil {
		t.Fatal(err)
	}
	if want, err := r.Page(string(page)); err != nil || want != string(page) {
		t.Errorf("docs/benchmarks.md is not of results/latest.json (%v): run `make bench ARGS=-render`", err)
	}
	picture, err := os.ReadFile(filepath.Join(docs, "benchmarks.svg"))
	if err != nil || string(picture) != r.Picture() {
		t.Errorf("docs/benchmarks.svg is not of results/latest.json (%v): run `make bench ARGS=-render`", err)
	}
}

func TestPageNeedsAllItsParts(t *testing.T) {
	if _, err := sample().Page("<!-- generated: goals -->\n<!-- end -->"); err == nil {
		t.Error("a page without places for the tables was accepted")
	}
}
