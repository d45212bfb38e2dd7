package main

import (
	"sync"
	"time"
)

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
