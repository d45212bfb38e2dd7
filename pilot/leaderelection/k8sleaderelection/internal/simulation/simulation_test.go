package simulation

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// defaultSeeds is how many seeds an ordinary test run plays.
const defaultSeeds = 2000

// number reads a number from the environment.
func number(t *testing.T, name string, otherwise uint64) (uint64, bool) {
	text := os.Getenv(name)
	if text == "" {
		return otherwise, false
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s=%q: %v", name, text, err)
	}
	return n, true
}

// play runs the seeds from first on, on all CPUs, and hands each result to got, one at a time. It ends
// early when got says so.
func play(first, seeds uint64, mode *Mode, bug *Bug, got func(Result) bool) {
	var (
		next atomic.Uint64
		mu   sync.Mutex
		all  sync.WaitGroup
		over atomic.Bool
	)
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for !over.Load() {
				nth := next.Add(1) - 1
				if nth >= seeds {
					return
				}
				r := Run(Options{Seed: first + nth, Mode: mode, Bug: bug})
				mu.Lock()
				if !got(r) {
					over.Store(true)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
}

// chosenMode is the mode that the environment names; nil: each seed has its own.
func chosenMode(t *testing.T) *Mode {
	name := os.Getenv("SIM_MODE")
	if name == "" {
		return nil
	}
	mode, ok := ModeNamed(name)
	if !ok {
		t.Fatalf("SIM_MODE=%s: there is no such mode", name)
	}
	return &mode
}

// tally sums up one mode's seeds.
type tally struct {
	seeds, steps, terms, rate, broken int
	settled, leaderless               time.Duration
}

func TestSimulation(t *testing.T) {
	if seed, one := number(t, "SIM_SEED", 0); one && os.Getenv("SIM_BUG") == "" {
		r := Run(Options{Seed: seed, Mode: chosenMode(t), Trace: os.Stdout})
		t.Log(r)
		if len(r.Violations) > 0 {
			t.Fail()
		}
		return
	}
	seeds, _ := number(t, "SIM_SEEDS", defaultSeeds)
	first, _ := number(t, "SIM_FIRST", 0)
	only := chosenMode(t)
	tallies := map[string]*tally{}
	began := time.Now()
	steps := 0
	play(first, seeds, only, nil, func(r Result) bool {
		m := tallies[r.Mode]
		if m == nil {
			m = &tally{}
			tallies[r.Mode] = m
		}
		m.add(r)
		steps += r.Steps
		if len(r.Violations) > 0 && m.broken <= 5 {
			t.Errorf("%v\n  replay: SIM_SEED=%d SIM_MODE=%s go test -v -run TestSimulation .", r, r.Seed, r.Mode)
		}
		return true
	})
	took := time.Since(began)
	t.Logf("%d seeds from %d in %v: %.0f seeds/s, %d steps", seeds, first, took.Round(time.Millisecond), float64(seeds)/took.Seconds(), steps)
	for _, mode := range Modes {
		if m := tallies[mode.Name]; m != nil {
			t.Logf("%-12s %v", mode.Name, m)
		}
	}
}

func (m *tally) add(r Result) {
	m.seeds++
	m.steps += r.Steps
	m.terms += r.Terms
	m.rate = max(m.rate, r.Rate)
	m.settled = max(m.settled, r.Settled)
	m.leaderless = max(m.leaderless, r.Leaderless)
	if len(r.Violations) > 0 {
		m.broken++
	}
}

func (m *tally) String() string {
	n := float64(m.seeds)
	return fmt.Sprintf("%5d seeds, %d broken; %4.0f steps and %.1f terms each; at most %d calls in a second, %v until settled in the calm, %v without a leader",
		m.seeds, m.broken, float64(m.steps)/n, float64(m.terms)/n, m.rate, m.settled.Round(time.Millisecond), m.leaderless.Round(time.Millisecond))
}

// TestSameSeedSameRun: without that, no failing seed could be played again.
func TestSameSeedSameRun(t *testing.T) {
	for seed := range uint64(2 * len(Modes)) {
		var traces [2]strings.Builder
		for i := range traces {
			Run(Options{Seed: seed, Trace: &traces[i]})
		}
		if traces[0].Len() == 0 || traces[0].String() != traces[1].String() {
			t.Errorf("seed %d plays differently the second time", seed)
		}
	}
}
