package core

import (
	"testing"
	"time"
)

func TestTiming_Derived(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	for name, x := range map[string]struct {
		timing, want Timing
		drift        float64
	}{
		"istiod, exact clocks": {
			Timing{Lease: 30 * s, Validity: 15 * s, Retry: 7500 * ms},
			Timing{DrainLimit: 15 * s, StopLimit: 15 * s, Patience: 2 * s, RankDelay: 25 * ms}, 0,
		},
		"short, drift of a quarter": {
			Timing{Lease: 2 * s, Validity: 200 * ms, Retry: 80 * ms},
			Timing{DrainLimit: 1000 * ms, StopLimit: 4 * s, Patience: 40 * ms, RankDelay: 20 * ms}, 0.25,
		},
		"fraction of a millisecond": {
			Timing{Lease: s, Validity: 251 * ms, Retry: 101 * ms},
			Timing{DrainLimit: 567 * ms, StopLimit: 2 * s, Patience: 50500 * time.Microsecond, RankDelay: 25 * ms}, 0.1,
		},
		"configured limits": {
			Timing{Lease: 30 * s, Validity: 15 * s, Retry: 7500 * ms, DrainLimit: 3 * s, StopLimit: 5 * s},
			Timing{DrainLimit: 3 * s, StopLimit: 5 * s, Patience: 2 * s, RankDelay: 25 * ms}, 0,
		},
	} {
		want := x.want
		want.Lease, want.Validity, want.Retry = x.timing.Lease, x.timing.Validity, x.timing.Retry
		if got := x.timing.Derived(x.drift); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}
