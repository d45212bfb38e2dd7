package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// The names of scenarios, in the order of a run.
const (
	Graceful = "graceful"
	Crash    = "crash"
	Kill     = "kill"
	Steal    = "steal"
	Requests = "requests"
	Scale    = "scale"
	Crowd    = "herd"
)

// Scenarios are all scenarios.
var Scenarios = []string{Graceful, Crash, Kill, Steal, Requests, Scale, Crowd}

// The libraries as tables name them. Limit is two writes and one event without an elector.
const (
	Ours     = "incumbent"
	Istio    = "Istio"
	ClientGo = "client-go"
	Limit    = "limit"
)

// Results are the measurements by scenario.
type Results struct {
	Scenarios map[string]*Scenario `json:"scenarios"`
}

// Scenario is one scenario's measurements.
type Scenario struct {
	Began    time.Time         `json:"began"`
	Machine  string            `json:"machine"`
	Versions map[string]string `json:"versions"`

	Series []*Series `json:"series,omitempty"`
	Loads  []Load    `json:"loads,omitempty"`
	Sizes  []Size    `json:"sizes,omitempty"`
	Herds  []Herd    `json:"herds,omitempty"`
}

// Series is one row of times.
type Series struct {
	Library string `json:"library"`
	Timing  string `json:"timing,omitempty"`
	// Part is the part of the scenario: refused or swallowed.
	Part string `json:"part,omitempty"`
	// Millis are the times.
	Millis []float64 `json:"ms"`
	// Overlap is the overlap of two run functions in each round.
	Overlap []float64 `json:"overlapMs,omitempty"`
	// Lost is the number of rounds that did not end in time.
	Lost int `json:"lost,omitempty"`
}

// Load is the load of one process in idle elections.
type Load struct {
	Library string `json:"library"`
	Timing  string `json:"timing"`
	Role    string `json:"role"`
	// PerMinute are the requests by verb and resource, per minute and election.
	PerMinute map[string]float64 `json:"perMinute"`
	// CPU is the CPU time of the process in seconds per hour.
	CPU       float64 `json:"cpuSecondsPerHour"`
	Elections int     `json:"elections"`
}

// Size is the cost of an election in a process with many elections.
type Size struct {
	Library    string  `json:"library"`
	Timing     string  `json:"timing"`
	Role       string  `json:"role"`
	Elections  int     `json:"elections"`
	HeapKiB    float64 `json:"heapKiB"`
	StackKiB   float64 `json:"stackKiB"`
	Goroutines float64 `json:"goroutines"`
	// PerSecond is the number of requests of the process per second.
	PerSecond float64 `json:"requestsPerSecond"`
}

// Stop is the event that a leader stops.
const Stop = "stop"

// Herd is the effort of many candidates for one event.
type Herd struct {
	Event      string    `json:"event"` // Stop or Steal
	Candidates int       `json:"candidates"`
	Elections  int       `json:"elections"`
	Millis     []float64 `json:"ms"`
	// Conflicts and Reads are per event and election.
	Conflicts float64 `json:"conflicts"`
	Reads     float64 `json:"reads"`
}

// Read reads results. It returns empty Results if the file does not exist.
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
		return nil, fmt.Errorf("read %s: %w", path, err)
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

// Spread describes a distribution.
type Spread struct{ Median, P99 float64 }

// SpreadOf returns the spread of values. The p99 of fewer than a hundred values is the largest.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	at := func(percent int) float64 { return sorted[max(0, (percent*n+99)/100-1)] }
	return Spread{Median: at(50), P99: at(99)}
}

// row is a series to which concurrent elections add.
type row struct {
	mu     sync.Mutex
	series *Series
}

// newRow adds a series to a scenario.
func newRow(s *Scenario, series Series) *row {
	s.Series = append(s.Series, &series)
	return &row{series: &series}
}

func (r *row) time(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.series.Millis = append(r.series.Millis, inMillis(d))
}

func (r *row) overlap(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.series.Overlap = append(r.series.Overlap, inMillis(d))
}

func (r *row) lost() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.series.Lost++
}

// inMillis rounds to microseconds.
func inMillis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
