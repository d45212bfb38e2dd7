package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// The names of scenarios, in the order of a run.
const (
	Graceful = "graceful"
	Crash    = "crash"
	Steal    = "steal"
	Requests = "requests"
	Scale    = "scale"
)

// Scenarios are all of them.
var Scenarios = []string{Graceful, Crash, Steal, Requests, Scale}

// The libraries as tables call them. Limit is the row of what nobody can beat.
const (
	Ours     = "incumbent"
	Istio    = "Istio"
	ClientGo = "client-go"
	Limit    = "limit"
)

// TakingOver begins the case of a row in which one library takes over from another.
const TakingOver = "taking over from"

// Results is what was measured, scenario by scenario.
type Results struct {
	Scenarios map[string]*Scenario `json:"scenarios"`
}

// Scenario is one scenario's measurements.
type Scenario struct {
	Began   time.Time `json:"began"`
	Seconds float64   `json:"seconds"`
	// HarnessCPU is the CPU time, in seconds, of the process that measures. Candidates run in
	// that process, except those of the scenarios requests and scale.
	HarnessCPU float64 `json:"harnessCPUSeconds"`
	// ServerCPU is that of the API server and of etcd.
	ServerCPU float64           `json:"serverCPUSeconds"`
	Machine   string            `json:"machine"`
	Versions  map[string]string `json:"versions"`
	Quick     bool              `json:"quick,omitempty"`

	Series []Series `json:"series,omitempty"`
	Loads  []Load   `json:"loads,omitempty"`
	Sizes  []Size   `json:"sizes,omitempty"`
}

// Series is one row of times.
type Series struct {
	Library string `json:"library"`
	Timing  string `json:"timing,omitempty"`
	// Case tells rows of a library and a timing apart, such as by lock.
	Case string `json:"case,omitempty"`
	// Part of the scenario, where it has several: refused, swallowed.
	Part string `json:"part,omitempty"`
	// Millis are the times.
	Millis []float64 `json:"ms"`
	// Overlap is for how long, in each round, two run functions were alive at once.
	Overlap []float64 `json:"overlapMs,omitempty"`
	// Lost are rounds that did not end within their bound, which is told too.
	Lost int `json:"lost,omitempty"`
}

// Load is what one process did per minute and election, in a quiet election.
type Load struct {
	Library string `json:"library"`
	Timing  string `json:"timing"`
	Role    string `json:"role"`
	// PerMinute are requests by verb and resource, per minute and election.
	PerMinute map[string]float64 `json:"perMinute"`
	// CPU is seconds of CPU per hour of the whole process, with Elections in it.
	CPU       float64 `json:"cpuSecondsPerHour"`
	Elections int     `json:"elections"`
}

// Size is what elections of one process take, per election, less what the process
// takes without them.
type Size struct {
	Library    string  `json:"library"`
	Timing     string  `json:"timing"`
	Role       string  `json:"role"`
	Elections  int     `json:"elections"`
	HeapKiB    float64 `json:"heapKiB"`
	StackKiB   float64 `json:"stackKiB"`
	Goroutines float64 `json:"goroutines"`
	// PerSecond are requests of the process per second.
	PerSecond float64 `json:"requestsPerSecond"`
	// CPU is seconds of CPU per hour and election.
	CPU float64 `json:"cpuSecondsPerHour"`
	// Lost is how many terms ended while it was measured, which none should.
	Lost int `json:"lostTerms,omitempty"`
	// Failed says why there is nothing to measure.
	Failed string `json:"failed,omitempty"`
}

// Load reads results; none yet is an empty Results.
func Read(path string) (*Results, error) {
	r := &Results{Scenarios: map[string]*Scenario{}}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return r, nil
}

// Write stores results.
func (r *Results) Write(path string) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(raw, '\n'), 0o644)
}

// Spread is how times are distributed.
type Spread struct {
	N                     int
	Min, Median, P99, Max float64
}

// SpreadOf sorts a copy. The p99 of fewer than a hundred is the largest.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	// The smallest value that at least this share of all does not exceed.
	at := func(percent int) float64 { return sorted[max(0, (percent*n+99)/100-1)] }
	return Spread{N: n, Min: sorted[0], Median: at(50), P99: at(99), Max: sorted[n-1]}
}

// find returns the series of a scenario, nil if it has none such.
func (r *Results) find(scenario string, match func(Series) bool) *Series {
	s := r.Scenarios[scenario]
	if s == nil {
		return nil
	}
	i := slices.IndexFunc(s.Series, match)
	if i < 0 {
		return nil
	}
	return &s.Series[i]
}
