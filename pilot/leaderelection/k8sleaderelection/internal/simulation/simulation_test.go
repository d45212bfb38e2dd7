package simulation

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// defaultSeeds is the number of seeds without SIM_SEEDS.
const defaultSeeds = 2000

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

// play runs seeds on all CPUs and passes each result to got, one at a time. It ends early if got returns
// false.
func play(first, seeds uint64, mode *Mode, bug *Bug, got func(Result) bool) {
	defer debug.SetGCPercent(debug.SetGCPercent(1000)) // a run needs little memory
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

// chosenMode returns the mode in SIM_MODE. If nil, each seed has its own.
func chosenMode(t *testing.T) *Mode {
	name := os.Getenv("SIM_MODE")
	if name == "" {
		return nil
	}
	mode, ok := ModeNamed(name)
	if !ok {
		t.Fatalf("SIM_MODE=%s: unknown mode", name)
	}
	return &mode
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
	began, steps, broken := time.Now(), 0, map[string]int{}
	play(first, seeds, only, nil, func(r Result) bool {
		steps += r.Steps
		if len(r.Violations) == 0 {
			return true
		}
		if broken[r.Mode]++; broken[r.Mode] <= 5 {
			t.Errorf("%v\n  replay: SIM_SEED=%d SIM_MODE=%s go test -v -run TestSimulation .", r, r.Seed, r.Mode)
		}
		return true
	})
	t.Logf("seeds %d to %d: %d steps in %v; failed seeds by mode: %v", first, first+seeds-1, steps, time.Since(began).Round(time.Millisecond), broken)
}

// TestSameSeedSameRun shows that a failing seed can be replayed.
func TestSameSeedSameRun(t *testing.T) {
	for seed := range uint64(2 * len(Modes)) {
		var traces [2]strings.Builder
		for i := range traces {
			Run(Options{Seed: seed, Trace: &traces[i]})
		}
		if traces[0].Len() == 0 || traces[0].String() != traces[1].String() {
			t.Errorf("seed %d: the second run differs", seed)
		}
	}
}
