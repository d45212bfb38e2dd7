package simulation

import (
	"fmt"
	"strings"
)

// Check is the name of a promise, or of a rule that a promise depends on.
type Check string

const (
	OneAtATime   Check = "one-at-a-time"    // run functions or gates of two processes at the same time
	Peers        Check = "peers"            // the same with other electors, as far as they stop in time
	Settling     Check = "settling"         // acted before the leases of known holders had expired
	Handover     Check = "handover"         // broke a rule of handovers
	Orders       Check = "orders"           // rank took precedence over a hold
	Fitness      Check = "fitness"          // an unfit process campaigned
	NoFlapping   Check = "no-flapping"      // the highest rank was not first, or leaders alternate
	Release      Check = "release"          // released while a process acted
	Validity     Check = "validity"         // a gate was open longer than validity
	Token        Check = "token"            // fencing tokens do not grow, or belong to another term
	StepDown     Check = "step-down"        // a leader lost its term without need
	HardStop     Check = "hard-stop"        // run functions were not cancelled in time
	OwnLockOnly  Check = "own-lock-only"    // a write changed another record than the one it was decided on
	OneTerm      Check = "one-term"         // a term began before the run functions of the last one returned, or a gate reopened
	NothingLost  Check = "nothing-lost"     // metadata of others, or an unreadable record, was overwritten
	Prompt       Check = "prompt"           // no leader although a candidate was available
	Quiet        Check = "quiet"            // needless calls, or a hot loop
	Effort       Check = "effort"           // more calls than time and causes explain
	Reports      Check = "reports"          // a state was reported repeatedly
	Changes      Check = "changes"          // more leader changes than causes
	Coordination Check = "coordination"     // a coordinated lock was acquired without being named
	SlowNotDead  Check = "slow-is-not-dead" // a slow API server or a dead connection cost a term
	Count        Check = "count"            // wrong number of transitions
)

var allChecks = []Check{
	OneAtATime, Peers, Settling, Handover, Orders, Fitness, NoFlapping, Release, Validity, Token, StepDown, HardStop, OwnLockOnly, OneTerm, NothingLost, Prompt, Quiet, Effort, Reports, Changes, Count, Coordination, SlowNotDead,
}

// Violation is a failed check.
type Violation struct {
	Check  Check
	At     Time
	Detail string
}

// maxViolations is the number of violations of one check that a run keeps.
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

// String lists the violations.
func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, mode %s: %d steps, %d terms", r.Seed, r.Mode, r.Steps, r.Terms)
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "\n  at %v, %s: %s", v.At, v.Check, v.Detail)
	}
	return b.String()
}
