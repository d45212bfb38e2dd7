package leaderelection

import (
	"sync"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// former is what a keeper remembers of the earlier versions' holders that it saw in the
// predecessor's lock. A kept lock usually follows on one whose term has ended. But a restore of
// an older state can put a kept record back beneath a holder that acts: it learns of that only
// by its own watch, and drains after that.
type former struct {
	mu          sync.Mutex
	known       bool
	transitions int                      // of the newest such record
	actsUntil   k8sleaderelection.Moment // no function starts before
}

// saw notes a holder.
func (f *former) saw(holder string, transitions int) {
	if holder == "" || holder == k8sresourcelock.Successors {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known, f.transitions = true, max(f.transitions, transitions)
}

// rewound takes in that the lock is kept now, in the term of that number. It reports whether
// that is a state from before a holder that was seen; then that one may act for a while longer.
// Each holder counts once: its term is over when it has been waited for.
func (f *former) rewound(transitions int, now k8sleaderelection.Moment, longer time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.known {
		return false
	}
	back := transitions <= f.transitions
	f.known, f.transitions = false, 0
	if back {
		f.actsUntil.Mono = max(f.actsUntil.Mono, now.Mono.After(longer))
	}
	return back
}

// actsFor is for how long functions have to wait.
func (f *former) actsFor(now k8sleaderelection.Moment) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return now.Mono.Until(f.actsUntil.Mono)
}
