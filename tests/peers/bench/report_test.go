package main

import (
	"os"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

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

func TestPage_UpToDate(t *testing.T) {
	r, err := Read("../results/latest.json")
	harness.Must(t, err)
	page, err := os.ReadFile("../../../docs/benchmarks.md")
	harness.Must(t, err)
	if want, err := r.Page(string(page)); err != nil || want != string(page) {
		t.Errorf("docs/benchmarks.md differs from results/latest.json (%v). Run `make bench ARGS=-render`.", err)
	}
}

// Without results, the tables are empty.
func TestPage_MissingPart(t *testing.T) {
	if _, err := (&Results{}).Page("<!-- generated: times -->\n<!-- end -->"); err == nil {
		t.Error("a page without all generated parts was accepted")
	}
}
