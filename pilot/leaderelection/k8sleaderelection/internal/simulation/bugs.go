package simulation

import (
	"slices"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// stepper is core.Config.Step, or something around it.
type stepper func(core.Config, core.State, core.Input) (core.State, core.Action)

// Bug is a defect, planted by wrapping Step: the wrapper changes what goes in or what
// comes out, never the core.
type Bug struct {
	Name  string
	Mode  string // where it shows
	Check Check  // which has to catch it
	// plant makes the wrapper for one process.
	plant func() stepper
}

func stepOf(b *Bug) stepper {
	if b == nil {
		return core.Config.Step
	}
	return b.plant()
}

// each plants a wrapper that remembers nothing.
func each(s stepper) func() stepper { return func() stepper { return s } }

// BugNamed returns the bug of that name.
func BugNamed(name string) (Bug, bool) {
	for _, b := range AllBugs() {
		if b.Name == name {
			return b, true
		}
	}
	return Bug{}, false
}

// AllBugs are the planted defects: those of pairs last.
func AllBugs() []Bug {
	return slices.Concat(Bugs, handoverBugs, coordinatedBugs, predecessorBugs, effortBugs, pairBugs())
}

// Bugs are the planted defects. Several could be caught by more than one check; each
// names the one that it is there to prove.
var Bugs = []Bug{
	{"cover-from-reply", "network", Cover, each(coverFromReply)},
	{"unknown-adopted", "network", Cover, each(unknownAdopted)},
	{"release-before-drain", "orderly", Release, each(releaseBeforeDrain)},
	{"half-lease", "network", OneAtATime, each(leaseShiftedBy(func(c core.Config, _ core.State, _ core.Input) time.Duration { return c.Lease / 2 }))},
	{"record-time", "network", OneAtATime, each(leaseShiftedBy(recordAge))},
	{"old-events", "network", StepDown, each(oldEvents)},
	{"no-settling", "upgrade", OneAtATime, each(noSettling)},
	{"settling-cut-short", "upgrade", Settling, each(settlingCutShort)},
	{"release-while-settling", "chaos", Release, each(releaseWhileSettling)},
	{"renewal-changes-nothing", "pauses", StepDown, each(renewalChangesNothing)},
	{"own-name-without-marker", "chaos", OneAtATime, each(ownNameWithoutMarker)},
	{"old-token", "network", Token, oldToken},
	{"gate-reopens", "network", OneTerm, each(gateReopens)},
	{"term-before-drained", "network", OneTerm, each(termBeforeDrained)},
	{"goes-on", "upgrade", HardStop, each(goesOn)},
	{"deaf-to-the-clock", "network", HardStop, each(deafToTheClock)},
	{"unguarded", "ranked", OwnLockOnly, each(unguarded)},
	{"unguarded-metadata", "edits", NothingLost, each(unguarded)},
	{"unreadable-at-once", "edits", NothingLost, each(unreadableAtOnce)},
	{"polls-always", "orderly", Quiet, each(pollsAlways)},
	{"no-back-off", "network", Quiet, each(noBackOff)},
	{"gives-up-trying", "network", Prompt, each(givesUpTrying)},
	{"waits-for-a-poll", "orderly", Prompt, each(waitsForAPoll)},
	{"ignores-default", "upgrade", Prompt, each(ignoresDefault)},
	{"no-peer-grace", "mixed-bad", Peers, each(noPeerGrace)},
}

func coverFromReply(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	cover := s.Cover
	s, a := c.Step(s, in)
	if s.Cover != cover && s.Cover != (core.Cover{}) {
		s.Cover = in.Now.Plus(c.Cover)
		if a.Gate != (core.Cover{}) {
			a.Gate = s.Cover
		}
	}
	return s, a
}

// unknownAdopted takes an acquire that was not answered for one that succeeded.
func unknownAdopted(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if in.Kind == core.Replied && in.Result == core.Unknown && s.Flight.Op == core.Acquire {
		in.Result = core.OK
		in.Snap = s.Snap
		in.Snap.Exists, in.Snap.Content = true, core.Readable
		in.Snap.Version = s.Flight.Base + 1
		in.Snap.Record = s.Flight.Record
		in.Snap.Sum++
		if s.Flight.Marker {
			in.Snap.Notes.Marker = core.Marker{Identity: c.Self, Transitions: s.Flight.Record.Transitions}
		}
	}
	return c.Step(s, in)
}

func releaseBeforeDrain(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if s.Phase == core.Draining {
		s.Alive = false
	}
	return c.Step(s, in)
}

// leaseShiftedBy lets another's lease seem older than it is.
func leaseShiftedBy(by func(core.Config, core.State, core.Input) time.Duration) stepper {
	return func(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
		if s.Phase != core.Following || s.Snap.Record.Holder == "" || s.Snap.Record.Holder == c.Self {
			return c.Step(s, in)
		}
		d := core.Instant(by(c, s, in))
		shifted := s.Since.Record - d
		s.Since.Record = shifted
		s, a := c.Step(s, in)
		if s.Since.Record == shifted {
			s.Since.Record += d
		}
		return s, a
	}
}

// recordAge is how old the record is if its writer's clock is believed, beyond how
// long we have known it.
func recordAge(_ core.Config, s core.State, in core.Input) time.Duration {
	age := in.Now.Wall - int64(s.Snap.Record.Renewed)*int64(time.Microsecond)
	return time.Duration(age) - s.Since.Record.Until(in.Now.Mono)
}

func oldEvents(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if in.Kind == core.Seen {
		s.Snap.Version = min(s.Snap.Version, in.Snap.Version)
	}
	return c.Step(s, in)
}

// noSettling acts at once after preempting.
func noSettling(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	c.Immediate = true
	return c.Step(s, in)
}

func settlingCutShort(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if s.Phase == core.Settling {
		s.Earlier.SettleAt = min(s.Earlier.SettleAt, s.BeganAt.After(c.Lease/2))
	}
	return c.Step(s, in)
}

func releaseWhileSettling(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if in.Kind == core.Stop && s.Phase == core.Settling {
		s.Phase, s.Marked, s.Alive = core.Draining, true, false
	}
	return c.Step(s, in)
}

// renewalChangesNothing writes the wall clock as it is, even if it stands still.
func renewalChangesNothing(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	s, a := c.Step(s, in)
	if a.Op == core.Renew {
		a.Record.Renewed = core.Stamp(in.Now.Wall/int64(time.Second)) * 1e6
		s.Flight.Record, s.Own.Stamps[0] = a.Record, a.Record.Renewed
	}
	return s, a
}

func ownNameWithoutMarker(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	for _, snap := range []*core.Snapshot{&s.Snap, &in.Snap} {
		if snap.Record.Holder == c.Self && s.Phase == core.Following {
			snap.Notes.Marker = core.Marker{Identity: c.Self, Transitions: snap.Record.Transitions}
		}
	}
	return c.Step(s, in)
}

// oldToken goes on with the token of the term before.
func oldToken() stepper {
	var last uint64
	return func(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
		before := s.Term
		s, a := c.Step(s, in)
		if s.Term != before && s.Term.Token != 0 {
			if last != 0 {
				s.Term.Token = last
			}
			last = s.Term.Token
		}
		return s, a
	}
}

// gateReopens forgets that the term is lost.
func gateReopens(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if s.Phase == core.Draining && in.Kind == core.Replied && s.Drain.Lost == core.CoverLost {
		s.Drain.Lost = core.NotLost
	}
	return c.Step(s, in)
}

// termBeforeDrained follows, and campaigns, while functions still run.
func termBeforeDrained(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if s.Phase == core.Draining && s.Drain.Lost != core.NotLost {
		s.Alive = false
	}
	return c.Step(s, in)
}

// goesOn overlooks that somebody else holds the lock, as long as it leads.
func goesOn(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if s.Phase == core.Leading && in.Kind == core.Seen && in.Snap.Record.Holder != c.Self {
		in = core.Input{Kind: core.Tick, Now: in.Now}
	}
	return c.Step(s, in)
}

// deafToTheClock leaves the end of the cover to the gate alone.
func deafToTheClock(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	cover := s.Cover
	if s.Phase == core.Leading {
		s.Cover = in.Now.Plus(time.Hour)
	}
	stretched := s.Cover
	s, a := c.Step(s, in)
	if s.Cover == stretched {
		s.Cover = cover
	}
	if a.Gate == stretched {
		a.Gate = cover
	}
	return s, a
}

// unguarded writes over whatever is there.
func unguarded(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	s, a := c.Step(s, in)
	if a.Op == core.Renew || a.Op == core.Release {
		a.Base.Version = unguardedVersion
	}
	return s, a
}

func unreadableAtOnce(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if s.Snap.Content == core.Unreadable {
		s.Since.Record -= core.Instant(c.Lease)
	}
	return c.Step(s, in)
}

func pollsAlways(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	s.Watch = false
	return c.Step(s, in)
}

func noBackOff(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	s, a := c.Step(s, in)
	if a.Op == core.NoOp && a.Why == core.Retrying {
		s.Effort.Reads.Next, s.Effort.Writes.Next, s.Effort.Asks.Next = 0, 0, 0
		return c.Step(s, core.Input{Kind: core.Tick, Now: in.Now})
	}
	return s, a
}

// givesUpTrying never tries again after three failures in a row.
func givesUpTrying(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	s, a := c.Step(s, in)
	if max(s.Effort.Reads.Fails, s.Effort.Writes.Fails) >= 3 && a.Op == core.NoOp {
		s.Effort.Reads.Next, s.Effort.Writes.Next, a.Wake = core.Never, core.Never, core.Never
	}
	return s, a
}

// waitsForAPoll takes a free lock only when it polls.
func waitsForAPoll(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if in.Kind == core.Seen && in.Snap.Record.Holder == "" {
		in = core.Input{Kind: core.Tick, Now: in.Now}
	}
	return c.Step(s, in)
}

func ignoresDefault(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if in.Kind == core.DefaultChanged && s.Default.Synced {
		in = core.Input{Kind: core.Tick, Now: in.Now}
	}
	return c.Step(s, in)
}

// noPeerGrace takes a peer at its lease's word.
func noPeerGrace(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	c.PeerGrace = 0
	return c.Step(s, in)
}
