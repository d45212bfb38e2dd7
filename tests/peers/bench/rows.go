package main

import (
	"errors"
	"sync"
	"time"

	"incumbent.dev/incumbent/tests/peers/report"
)

// rows collects series of concurrent elections.
type rows struct {
	mu   sync.Mutex
	all  []*report.Series
	errs []error
}

// add adds a series.
func (r *rows) add(s report.Series) *row {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, &s)
	return &row{rows: r, series: &s}
}

// failed records why an election could not be measured.
func (r *rows) failed(err error) {
	if err == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, err)
}

// into adds the series to a scenario.
func (r *rows) into(s *report.Scenario) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.all {
		s.Series = append(s.Series, *x)
	}
	return errors.Join(r.errs...)
}

// row is a growing series.
type row struct {
	rows   *rows
	series *report.Series
}

func (r *row) time(d time.Duration) {
	r.rows.mu.Lock()
	defer r.rows.mu.Unlock()
	r.series.Millis = append(r.series.Millis, inMillis(d))
}

func (r *row) overlap(d time.Duration) {
	r.rows.mu.Lock()
	defer r.rows.mu.Unlock()
	r.series.Overlap = append(r.series.Overlap, inMillis(d))
}

func (r *row) lost() {
	r.rows.mu.Lock()
	defer r.rows.mu.Unlock()
	r.series.Lost++
}

// inMillis rounds to microseconds.
func inMillis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
