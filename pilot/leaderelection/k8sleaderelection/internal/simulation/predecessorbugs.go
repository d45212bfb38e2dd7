package simulation

import "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"

// predecessorBugs break a rule of those who keep a predecessor's lock together.
var predecessorBugs = []Bug{
	{"kept-too-early", "predecessor", Settling, each(keptTooEarly)},
	{"joins-unsettled", "predecessor-bad", Settling, each(joinsUnsettled)},
	{"another-renewal-is-a-loss", "predecessor", StepDown, each(anotherRenewalIsALoss)},
	{"waits-for-another-successor", "predecessor", Prompt, each(waitsForAnotherSuccessor)},
	{"acts-for-an-own-record", "predecessor-bad", OneTerm, each(convertsWhileItActs)},
	{"any-holder-is-a-successor", "predecessor", OneAtATime, each(anyHolderIsASuccessor)},
	{"kept-by-an-unknown-write", "predecessor-bad", OneAtATime, each(unknownAdopted)},
	{"forgets-between-turns", "predecessor-bad", OneAtATime, each(forgetsBetweenTurns)},
}

// keptTooEarly writes the record that all keep as soon as the lock is won.
func keptTooEarly(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if c.Successor && s.Phase == core.Settling {
		s.Earlier = core.Earlier{}
	}
	return c.Step(s, in)
}

// joinsUnsettled believes whoever made the record one that all keep, whatever it has seen itself.
func joinsUnsettled(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	s, a := c.Step(s, in)
	if c.Successor && kept(s.Snap.Record, s.Snap.Successor) {
		s.Earlier = core.Earlier{}
	}
	return s, a
}

// anotherRenewalIsALoss takes the record for its own alone.
func anotherRenewalIsALoss(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if s.Phase == core.Leading && kept(in.Snap.Record, in.Snap.Successor) && in.Kind == core.Seen && in.Snap.Record.Renewed > s.Own.Stamps[0] {
		in.Snap.Successor = false
	}
	return c.Step(s, in)
}

// waitsForAnotherSuccessor takes those who keep the lock for one more holder.
func waitsForAnotherSuccessor(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if s.Phase == core.Following && s.Flight.Op != core.Acquire {
		in.Snap.Successor = false
	}
	return c.Step(s, in)
}

// convertsWhileItActs acts by a record of its own while it cannot read the lock, and makes it one that all keep later.
func convertsWhileItActs(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if s.Phase == core.Settling && s.Known.Outdated() && in.Now.Mono >= s.Earlier.SettleAt {
		c.Successor = false
	}
	return c.Step(s, in)
}

// anyHolderIsASuccessor takes whoever holds the lock for one that keeps it for the successors.
func anyHolderIsASuccessor(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if c.Successor && in.Snap.Record.Holder != "" && in.Snap.Record.Holder != c.Self {
		in.Snap.Record.Holder, in.Snap.Successor = core.Successors, true
	}
	return c.Step(s, in)
}

// forgetsBetweenTurns begins each turn as if it had seen nothing of the lock before.
func forgetsBetweenTurns(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if begins := s.SyncBy == 0; begins && c.Successor {
		s = core.State{Default: s.Default, Unfit: s.Unfit}
	}
	return c.Step(s, in)
}
