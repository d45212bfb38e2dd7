package simulation

import (
	"slices"
	"time"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// stepper is core.Config.Step or a wrapper around it.
type stepper func(core.Config, core.State, core.Input) (core.State, core.Action)

// Bug is a planted defect. It wraps Step and changes its arguments or its results.
type Bug struct {
	Name  string
	Mode  string // mode that shows the effect
	Check Check  // the check that has to find it
	// plant returns the wrapper for one process. If nil, the defect is not in Step.
	plant func() stepper
}

// decision is one call of Step. old is the state before a bug changed it.
type decision struct {
	c   core.Config
	old core.State
	s   core.State
	in  core.Input
	a   core.Action
}

// again repeats the step with a tick.
func (x *decision) again() {
	x.s, x.a = x.c.Step(x.s, core.Input{Kind: core.Tick, Now: x.in.Now, Beats: x.in.Beats})
}

// ignoreInput replaces the input by a tick.
func (x *decision) ignoreInput() { x.in = core.Input{Kind: core.Tick, Now: x.in.Now} }

// around plants a change of the arguments, a change of the results, or both.
func around(before, after func(*decision)) func() stepper {
	return func() stepper {
		return func(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
			x := &decision{c: c, old: s, s: s, in: in}
			if before != nil {
				before(x)
			}
			x.s, x.a = x.c.Step(x.s, x.in)
			if after != nil {
				after(x)
			}
			return x.s, x.a
		}
	}
}

func before(change func(*decision)) func() stepper { return around(change, nil) }
func after(change func(*decision)) func() stepper  { return around(nil, change) }

// beforeIf and afterIf change only the decisions for which is returns true.
func beforeIf(is func(*decision) bool, change func(*decision)) func() stepper {
	return before(func(x *decision) {
		if is(x) {
			change(x)
		}
	})
}

func afterIf(is func(*decision) bool, change func(*decision)) func() stepper {
	return after(func(x *decision) {
		if is(x) {
			change(x)
		}
	})
}

func stepOf(b *Bug) stepper {
	if b == nil || b.plant == nil {
		return core.Config.Step
	}
	return b.plant()
}

// BugNamed returns the bug of that name.
func BugNamed(name string) (Bug, bool) {
	for _, b := range AllBugs() {
		if b.Name == name {
			return b, true
		}
	}
	return Bug{}, false
}

// AllBugs returns the planted defects.
func AllBugs() []Bug {
	return slices.Concat(termBugs, handoverBugs, coordinatedBugs, effortBugs, witnessBugs, heldBugs, slowBugs)
}

// termBugs change how a term begins, continues and ends.
var termBugs = []Bug{
	{"validity-from-reply", "network", Validity, after(func(x *decision) {
		if x.s.Validity == x.old.Validity || x.s.Validity == (core.Validity{}) {
			return
		}
		if x.s.Validity = x.in.Now.Plus(x.c.Validity); x.a.Gate != (core.Validity{}) {
			x.a.Gate = x.s.Validity
		}
	})},
	{"unknown-is-success", "network", Validity, before(func(x *decision) { acquireSucceeds(x, core.Unknown) })},
	{"conflict-is-success", "network", Validity, before(func(x *decision) { acquireSucceeds(x, core.Conflict) })},
	{"release-before-drain", "orderly", Release, before(func(x *decision) {
		x.s.Running = x.s.Running && x.s.Phase != core.Draining
	})},
	{drainsWithoutWrites, "orderly", Release, nil},
	{"half-lease", "network", OneAtATime, leaseShifted(func(x *decision) time.Duration { return x.c.Lease / 2 })},
	{"lease-by-record-time", "network", OneAtATime, leaseShifted(func(x *decision) time.Duration {
		age := x.in.Now.Wall - int64(x.old.Snap.Record.Renewed)*int64(time.Microsecond)
		return time.Duration(age) - x.old.Since.Record.Until(x.in.Now.Mono)
	})},
	{"double-lease", "orderly", Prompt, leaseShifted(func(x *decision) time.Duration { return -2 * x.c.Lease })},
	{"old-events-count", "network", StepDown, beforeIf(func(x *decision) bool { return x.in.Kind == core.Seen }, func(x *decision) { x.s.Snap.Version = min(x.s.Snap.Version, x.in.Snap.Version) })},
	{"no-settling", "upgrade", OneAtATime, before(func(x *decision) { x.c.Immediate = true })},
	{"settling-too-short", "upgrade", Settling, beforeIf(func(x *decision) bool { return x.s.Phase == core.Settling }, func(x *decision) {
		x.s.Earlier.SettleAt = min(x.s.Earlier.SettleAt, x.s.BeganAt.After(x.c.Lease/2))
	})},
	{"release-while-settling", "chaos", Release, beforeIf(func(x *decision) bool { return x.in.Kind == core.Stop && x.s.Phase == core.Settling }, func(x *decision) {
		x.s.Phase, x.s.Marked, x.s.Running = core.Draining, true, false
	})},
	{"renewal-repeats-stamp", "pauses", Validity, afterIf(func(x *decision) bool { return x.a.Op == core.Renew }, func(x *decision) {
		x.a.Record.Renewed = core.Stamp(x.in.Now.Wall/int64(time.Second)) * 1e6
		x.s.Flight.Record, x.s.Own.Writes[0].Renewed = x.a.Record, x.a.Record.Renewed
	})},
	{"own-name-without-marker", "chaos", OneAtATime, before(func(x *decision) {
		for _, snap := range []*core.Snapshot{&x.s.Snap, &x.in.Snap} {
			if snap.Record.Holder == x.c.Self && x.s.Phase == core.Following {
				snap.Record.Lease = x.c.Lease
				snap.Annotations.Marker = core.Marker{Identity: x.c.Self, Transitions: snap.Record.Transitions}
			}
		}
	})},
	{"token-of-former-term", "network", Token, formerToken},
	{"gate-reopens", "network", OneTerm, beforeIf(func(x *decision) bool {
		return x.s.Phase == core.Draining && x.in.Kind == core.Replied && x.s.Drain.Lost == core.ValidityLost
	}, func(x *decision) {
		x.s.Drain.Lost = core.NotLost
	})},
	{"term-before-drained", "network", OneTerm, before(func(x *decision) {
		x.s.Running = x.s.Running && (x.s.Phase != core.Draining || x.s.Drain.Lost == core.NotLost)
	})},
	{"ignores-other-holder", "upgrade", HardStop, beforeIf(func(x *decision) bool {
		return x.s.Phase == core.Leading && x.in.Kind == core.Seen && x.in.Snap.Record.Holder != x.c.Self
	}, (*decision).ignoreInput)},
	{"ignores-validity-end", "network", HardStop, around(func(x *decision) {
		if x.s.Phase == core.Leading {
			x.s.Validity = x.in.Now.Plus(time.Hour)
		}
	}, func(x *decision) {
		long := x.in.Now.Plus(time.Hour)
		if x.s.Validity == long {
			x.s.Validity = x.old.Validity
		}
		if x.a.Gate == long {
			x.a.Gate = x.old.Validity
		}
	})},
	{"unguarded-write", "ranked", OwnLockOnly, after(writeUnguarded)},
	{"unguarded-metadata", "edits", NothingLost, after(writeUnguarded)},
	{"unreadable-replaced-early", "edits", NothingLost, beforeIf(func(x *decision) bool { return x.s.Snap.Content == record.Unreadable }, func(x *decision) { x.s.Since.Record -= core.Instant(x.c.Lease) })},
	{"always-polls", "orderly", Quiet, before(func(x *decision) { x.s.Watch = false })},
	{"no-back-off", "network", Quiet, afterIf(func(x *decision) bool { return x.a.Op == core.NoOp && x.a.Why == core.Retrying }, func(x *decision) {
		x.s.Effort.Reads.Next, x.s.Effort.Writes.Next, x.s.Effort.Requests.Next = 0, 0, 0
		x.again()
	})},
	{"stops-retrying", "network", Prompt, afterIf(func(x *decision) bool {
		return max(x.s.Effort.Reads.Fails, x.s.Effort.Writes.Fails) >= 3 && x.a.Op == core.NoOp
	}, func(x *decision) {
		x.s.Effort.Reads.Next, x.s.Effort.Writes.Next, x.a.Wake = core.Never, core.Never, core.Never
	})},
	{"release-needs-poll", "orderly", Prompt, beforeIf(func(x *decision) bool { return x.in.Kind == core.Seen && x.in.Snap.Record.Holder == "" }, (*decision).ignoreInput)},
	{"ignores-default", "upgrade", Prompt, beforeIf(func(x *decision) bool { return x.in.Kind == core.DefaultChanged && x.s.Default.Synced }, (*decision).ignoreInput)},
	{"no-peer-grace", "mixed-bad", Peers, before(func(x *decision) { x.c.PeerGrace = 0 })},
}

// acquireSucceeds treats a result of an acquire as success.
func acquireSucceeds(x *decision, result core.Result) {
	if x.in.Kind != core.Replied || x.in.Result != result || x.s.Flight.Op != core.Acquire {
		return
	}
	x.in.Result, x.in.Snap = core.OK, x.s.Snap
	snap, flight := &x.in.Snap, x.s.Flight
	snap.Exists, snap.Content, snap.Version, snap.Record = true, record.Readable, flight.Base+1, flight.Record
	snap.Sum++
	if flight.Marker {
		snap.Annotations.Marker = core.Marker{Identity: x.c.Self, Transitions: flight.Record.Transitions}
	}
}

// leaseShifted makes the lease of another holder appear older than it is.
func leaseShifted(by func(*decision) time.Duration) func() stepper {
	shifted := func(x *decision) core.Instant {
		if r := x.old.Snap.Record; x.old.Phase != core.Following || r.Holder == "" || r.Holder == x.c.Self {
			return x.old.Since.Record
		}
		return x.old.Since.Record - core.Instant(by(x))
	}
	return around(func(x *decision) { x.s.Since.Record = shifted(x) }, func(x *decision) {
		if x.s.Since.Record == shifted(x) {
			x.s.Since.Record = x.old.Since.Record
		}
	})
}

// formerToken uses the token of the previous term.
func formerToken() stepper {
	var last uint64
	return after(func(x *decision) {
		if x.s.Term == x.old.Term || x.s.Term.Token == 0 {
			return
		}
		if last != 0 {
			x.s.Term.Token = last
		}
		last = x.s.Term.Token
	})()
}

func writeUnguarded(x *decision) {
	if x.a.Op == core.Renew || x.a.Op == core.Release {
		x.a.Base.Version = unguardedVersion
	}
}

// coordinatedBugs break the rules of coordinated elections.
var coordinatedBugs = []Bug{
	{"named-without-settling", "coordinated-bad", OneAtATime, beforeIf(func(x *decision) bool {
		return x.s.Phase == core.Following && x.s.Snap.Record.Holder == x.c.Self && isNominated(x.s.Snap)
	}, func(x *decision) {
		x.s.Earlier.Until, x.s.Earlier.Former = 0, 0
	})},
	{"poll-shows-everything", "coordinated-bad", OneAtATime, after(func(x *decision) {
		if x.in.Kind != core.Replied || x.s.Snap.Version == x.old.Snap.Version || !isNominated(x.s.Snap) || x.s.Phase != core.Following {
			return
		}
		x.s.Earlier.Until = max(x.old.Earlier.Until, min(x.s.Earlier.Until, x.old.Since.Record.After(x.c.Lease)))
		x.s.Earlier.Former = x.old.Earlier.Former
		if x.a.Op == core.NoOp || x.a.Op == core.Acquire {
			x.s.Flight = core.Call{}
			x.again()
		}
	})},
	{"acquires-unnamed", "coordinated", Coordination, before(func(x *decision) {
		x.c.Coordinated = x.c.Coordinated && x.s.Snap.Record.Holder != ""
	})},
	{"requests-when-coordinated", "coordinated", Coordination, before(func(x *decision) {
		x.c.Coordinated = x.c.Coordinated && (x.s.Snap.Record.Holder == "" || x.s.Snap.Record.Holder == x.c.Self)
	})},
	{"acquires-promised-lock", "coordinated-mixed", Coordination, before(func(x *decision) {
		for _, snap := range []*core.Snapshot{&x.s.Snap, &x.in.Snap} {
			if !x.c.Coordinated && snap.Record.Holder == "" {
				snap.Preferred = ""
			}
		}
	})},
	{"term-not-counted", "coordinated", Count, before(func(x *decision) { x.in.Snap.Annotations.Nominated.Uncounted = false })},
	{"ignores-preference", "coordinated", Prompt, before(func(x *decision) { x.in.Snap.Preferred = "" })},
	{"preference-over-hold", "coordinated-bad", Orders, beforeIf(func(x *decision) bool { return x.in.Snap.Preferred != "" && x.in.Snap.Preferred != x.c.Self }, func(x *decision) {
		x.in.Snap.Annotations.Hold = core.Hold{}
	})},
	{"preference-without-coordinator", "annotations", StepDown, before(func(x *decision) { x.s.CoordinatorSeen = true })},
	{"waits-for-removed-coordinator", "coordinator-removed", Prompt, before(func(x *decision) {
		x.s.Alone = x.s.Alone && x.s.Snap.Record.Holder == x.c.Self
	})},
	{"waits-for-absent-coordinator", "coordinator-gone", Prompt, beforeIf(func(x *decision) bool {
		return x.s.Phase == core.Following && !isNominated(x.s.Snap) && x.s.Snap.Record.Holder != x.c.Self
	}, func(x *decision) {
		x.s.Since.Record, x.s.Absent = max(x.s.Since.Record, x.in.Now.Mono), false
	})},
}

// effortBugs cause calls, log lines and handovers without end.
var effortBugs = []Bug{
	{"read-resets-writes", "refused", Effort, before(readResetsWrites)},
	{"refusal-is-unknown", "refused", Effort, before(func(x *decision) {
		if x.in.Kind == core.Replied && x.in.Result == core.Refused {
			x.in.Result, x.in.RetryAfter = core.Unknown, 0
		}
		readResetsWrites(x)
	})},
	{"polls-while-refused", "refused", Effort, after(func(x *decision) {
		switch {
		case x.a.Why != core.Retrying:
		case x.a.Op == core.NoOp && x.s.Phase == core.Following && x.s.Effort.Reads.Next <= x.in.Now.Mono:
			x.a.Op, x.s.Flight = core.Read, core.Call{Op: core.Read, Sent: x.in.Now, Learned: x.s.Learned}
			x.s.Effort.Reads.Next = x.in.Now.Mono.After(x.c.Retry / 8)
		default:
			x.a.Wake = min(x.a.Wake, x.in.Now.Mono.After(x.c.Retry/8))
		}
	})},
	{"conflicts-without-pause", "one-sided", Effort, before(func(x *decision) {
		x.s.Effort.Writes.Conflicts, x.s.Effort.Requests.Conflicts = 0, 0
	})},
	{"denial-is-conflict", "refused", Effort, before(func(x *decision) {
		x.s.Effort.Writes.Base, x.s.Effort.Requests.Base = 0, 0
	})},
	{"herd-without-turns", "herd", Effort, before(func(x *decision) { x.s.Effort.Herd = core.Herd{} })},
	{"herd-never-forgets", "upgrade", Prompt, after(func(x *decision) {
		switch h := &x.s.Effort.Herd; {
		case h.Lost > x.old.Effort.Herd.Lost:
			*h = core.Herd{Window: x.c.Retry / 4, Lost: 2}
		default:
			*h = x.old.Effort.Herd
		}
	})},
	{"unbounded-retry-after", "refused", Prompt, afterIf(func(x *decision) bool {
		return x.in.Kind == core.Replied && x.in.Result == core.Refused && x.old.Flight.Op > core.Read && x.in.RetryAfter > 0
	}, func(x *decision) {
		x.s.Effort.Writes.Next = x.in.Now.Mono.After(x.in.RetryAfter)
		x.a.Wake = max(x.a.Wake, x.s.Effort.Writes.Next)
	})},
	{"forgets-stored-stamp", "refused", StepDown, around(func(x *decision) { x.s.Own.Acked, x.s.Own.Unseen = core.Write{}, 0 }, func(x *decision) {
		if own := &x.s.Own; x.a.Op == core.Renew || x.a.Op == core.Acquire {
			own.Writes = [4]core.Write{own.Writes[0], own.Writes[0], own.Writes[1], own.Writes[2]}
			own.Writes[0].Renewed += 1e6
			x.a.Record.Renewed, x.s.Flight.Record.Renewed = own.Writes[0].Renewed, own.Writes[0].Renewed
		}
	})},
	{"renewal-needs-read", "one-sided", StepDown, beforeIf(func(x *decision) bool { return x.s.Known.Outdated() }, func(x *decision) { x.s.Effort.Writes.Conflicts = max(x.s.Effort.Writes.Conflicts, 1) })},
	{"reports-every-retry", "refused", Reports, afterIf(func(x *decision) bool { return x.in.Kind != core.Replied }, func(x *decision) { x.s.Effort.Writes.Fails = 0 })},
	{"phase-alternates", "refused", Reports, afterIf(func(x *decision) bool {
		return x.in.Kind == core.Replied && x.in.Result == core.Refused && x.old.Phase == core.Following
	}, func(x *decision) {
		x.s.Phase = core.Settling
	})},
	{"late-events-delay-poll", "lagging", Changes, around(func(x *decision) {
		if x.in.Kind == core.Seen {
			x.s.Requesting.AnsweredAt = x.in.Now.Mono.After(x.c.Retry / 2)
		}
	}, func(x *decision) {
		if x.s.Snap.Record.Holder != x.old.Snap.Record.Holder {
			x.s.Requesting.NotBefore, x.s.Requesting.Count = 0, 0
		}
	})},
	{"no-sync-wait", "upgrade", NoFlapping, before(func(x *decision) { x.c.SyncWait = 0 })},
}

func readResetsWrites(x *decision) {
	if x.in.Kind == core.Replied && x.in.Result == core.OK && x.s.Flight.Op == core.Read {
		x.s.Effort.Writes = core.Effort{}
	}
}
