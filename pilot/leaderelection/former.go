package leaderelection

import (
	"cmp"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

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
	uid         types.UID                // of the object in which it was seen first; "" if that is not known
	transitions int                      // of the newest such record
	actsUntil   k8sleaderelection.Moment // no function starts before
}

// saw notes a holder, and in which object: uid may be "".
func (f *former) saw(holder string, uid types.UID, transitions int) {
	if holder == "" || holder == k8sresourcelock.Successors {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	// An object that came in the place of the first one does not end the term in that.
	f.known, f.uid, f.transitions = true, cmp.Or(f.uid, uid), max(f.transitions, transitions)
}

// rewound takes in that the lock is kept or ours now, in that object and the term of that number. It reports whether
// that does not follow on a holder that was seen: it is a state from before, or of another object, for the
// holder's was deleted. Then that one may act for a while longer.
// Each holder counts once: its term is over when it has been waited for.
func (f *former) rewound(uid types.UID, transitions int, now k8sleaderelection.Moment, longer time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.known {
		return false
	}
	back := transitions <= f.transitions || f.uid != "" && uid != f.uid
	f.known, f.uid, f.transitions = false, "", 0
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
