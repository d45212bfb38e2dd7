package simulation

import (
	"fmt"
	"strings"
)

// Check names what a violation violates: a promise of the design by its name, or a
// rule that a promise rests on.
type Check string

const (
	OneAtATime   Check = "one-at-a-time" // functions, or gates, of two processes at once
	Peers        Check = "peers"         // the same towards other electors, as far as they stop in time
	Settling     Check = "settling"      // began to act before those it had seen were bound to have ended
	Handover     Check = "handover"      // a rule of asking, accepting, nominating and taking over
	Orders       Check = "orders"        // rank before an operator's hold
	Fitness      Check = "fitness"       // one that is unfit wants to lead
	NoFlapping   Check = "no-flapping"   // not the highest rank first, or back without end
	Release      Check = "release"       // said that nobody acts while somebody did
	Cover        Check = "cover"         // a gate open for longer than an acknowledged write allows
	Token        Check = "token"         // fencing tokens that do not grow, or are not one's own
	StepDown     Check = "step-down"     // a leader that lost without need
	HardStop     Check = "hard-stop"     // functions not told to stop in time
	OwnLockOnly  Check = "own-lock-only" // a write to another record than the one it was decided on
	OneTerm      Check = "one-term"      // a term before the last one's functions returned, or a gate reopened
	NothingLost  Check = "nothing-lost"  // others' metadata, or an unreadable record, overwritten
	Prompt       Check = "prompt"        // nobody leads although somebody could
	Quiet        Check = "quiet"         // needless calls, or a hot loop
	Effort       Check = "effort"        // more calls than time and causes explain
	Reports      Check = "reports"       // a state that is reported again and again
	Changes      Check = "changes"       // the leader changes more often than there are causes
	Coordination Check = "coordination"  // took what a coordinator has to give
	Count        Check = "count"         // a count of terms that a guard of the lock would refuse
)

var allChecks = []Check{
	OneAtATime, Peers, Settling, Handover, Orders, Fitness, NoFlapping, Release, Cover, Token, StepDown, HardStop, OwnLockOnly, OneTerm, NothingLost, Prompt, Quiet, Effort, Reports, Changes, Count, Coordination,
}

// Violation is one failed check.
type Violation struct {
	Check  Check
	At     Time
	Detail string
}

// maxViolations of one check are kept for each run; the first matters most.
const maxViolations = 3

func (w *world) violate(check Check, format string, args ...any) {
	v := Violation{Check: check, At: w.now, Detail: fmt.Sprintf(format, args...)}
	w.tracef("VIOLATION of %s: %s", check, v.Detail)
	seen := 0
	for _, old := range w.result.Violations {
		if old.Check == check {
			seen++
		}
	}
	if seen < maxViolations {
		w.result.Violations = append(w.result.Violations, v)
	}
}

// Broke reports whether the run violated the check.
func (r Result) Broke(check Check) bool {
	for _, v := range r.Violations {
		if v.Check == check {
			return true
		}
	}
	return false
}

// String tells what went wrong, and how to see it again.
func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, mode %s: %d steps, %d terms", r.Seed, r.Mode, r.Steps, r.Terms)
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "\n  at %v, %s: %s", v.At, v.Check, v.Detail)
	}
	return b.String()
}
