package simulation

import "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"

// coordinatedBugs break a rule of those who wait for a coordinator.
var coordinatedBugs = []Bug{
	{"named-and-acts", "coordinated-bad", OneAtATime, each(namedAndActs)},
	{"poll-believed", "coordinated-bad", OneAtATime, each(pollBelieved)},
	{"takes-unnamed", "coordinated", Coordination, each(takesUnnamed)},
	{"asks-beside-coordinator", "coordinated", Coordination, each(asksBesideCoordinator)},
	{"takes-promised", "coordinated-mixed", Coordination, each(takesPromised)},
	{"uncounted-term", "coordinated", Count, each(uncountedTerm)},
	{"preference-ignored", "coordinated", Prompt, each(preferenceIgnored)},
	{"preference-before-hold", "coordinated-bad", Orders, each(preferenceBeforeHold)},
	{"waits-for-ever", "coordinator-gone", Prompt, each(waitsForEver)},
}

// namedAndActs takes a coordinator's word that the former holder is gone.
func namedAndActs(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if s.Phase == core.Following && s.Snap.Record.Holder == c.Self && isNominated(s.Snap) {
		s.Earlier.Until = 0
	}
	return c.Step(s, in)
}

// pollBelieved takes what a poll shows for all that there was since the one before.
func pollBelieved(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	until := s.Earlier.Until
	old, seenAt := s.Snap, s.Since.Record
	s, a := c.Step(s, in)
	if in.Kind == core.Replied && s.Snap.Version != old.Version && isNominated(s.Snap) && s.Phase == core.Following {
		s.Earlier.Until = max(until, min(s.Earlier.Until, seenAt.After(c.Lease)))
		if a.Op == core.NoOp || a.Op == core.Acquire {
			s.Flight = core.Call{}
			return c.Step(s, core.Input{Kind: core.Tick, Now: in.Now})
		}
	}
	return s, a
}

func takesUnnamed(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if s.Snap.Record.Holder == "" {
		c.Coordinated = false
	}
	return c.Step(s, in)
}

// takesPromised leaves a coordinator no time for whom it prefers.
func takesPromised(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if !c.Coordinated && s.Snap.Record.Holder == "" {
		s.Snap.Preferred = ""
	}
	if !c.Coordinated && in.Snap.Record.Holder == "" {
		in.Snap.Preferred = ""
	}
	return c.Step(s, in)
}

func asksBesideCoordinator(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if s.Snap.Record.Holder != "" && s.Snap.Record.Holder != c.Self {
		c.Coordinated = false
	}
	return c.Step(s, in)
}

// uncountedTerm begins its term with the number that the coordinator has left.
func uncountedTerm(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	in.Snap.Notes.Nominated.Uncounted = false
	return c.Step(s, in)
}

func preferenceIgnored(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	in.Snap.Preferred = ""
	return c.Step(s, in)
}

func preferenceBeforeHold(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if in.Snap.Preferred != "" && in.Snap.Preferred != c.Self {
		in.Snap.Notes.Hold = core.Hold{}
	}
	return c.Step(s, in)
}

// waitsForEver waits for a coordinator, whether there is one or not.
func waitsForEver(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if s.Phase == core.Following && !isNominated(s.Snap) && s.Snap.Record.Holder != c.Self {
		s.Since.Record, s.Absent = max(s.Since.Record, in.Now.Mono), 0
	}
	return c.Step(s, in)
}
