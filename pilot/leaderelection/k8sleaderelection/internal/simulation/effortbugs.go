package simulation

import (
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// effortBugs are defects that cost no safety: calls, lines and handovers without end.
var effortBugs = []Bug{
	{"read-resets-writes", "refused", Effort, each(readResetsWrites)},
	{"refusal-read-again", "refused", Effort, each(refusalReadAgain)},
	{"polls-beside-refusals", "refused", Effort, each(pollsBesideRefusals)},
	{"conflicts-without-pause", "one-sided", Effort, each(conflictsWithoutPause)},
	{"conflicts-with-nobody", "one-sided", Effort, each(conflictsWithNobody)},
	{"heeds-any-delay", "refused", Prompt, each(heedsAnyDelay)},
	{"ring-of-stamps", "refused", StepDown, each(ringOfStamps)},
	{"renews-only-what-it-read", "one-sided", StepDown, each(renewsOnlyWhatItRead)},
	{"says-it-again", "refused", Reports, each(saysItAgain)},
	{"phase-flutters", "refused", Reports, each(phaseFlutters)},
	{"answer-put-off-by-late-events", "lagging", Changes, each(answerPutOff)},
	{"unsynced-at-once", "upgrade", NoFlapping, each(unsyncedAtOnce)},
	{"count-goes-on-at-the-maximum", "maximum", Count, each(countShifted(1))},
	{"count-starts-below-the-maximum", "maximum", Count, each(countShifted(-1))},
}

// readResetsWrites takes a read that succeeds for a sign that writes do.
func readResetsWrites(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if in.Kind == core.Replied && in.Result == core.OK && s.Flight.Op == core.Read {
		s.Effort.Writes = core.Effort{}
	}
	return c.Step(s, in)
}

// refusalReadAgain takes a refusal for an answer that leaves everything open, and what is
// read then for the end of the trouble.
func refusalReadAgain(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if in.Kind == core.Replied && in.Result == core.Refused {
		in.Result, in.RetryAfter = core.Unknown, 0
	}
	return readResetsWrites(c, s, in)
}

// pollsBesideRefusals asks what has become of the lock while it waits to write it.
func pollsBesideRefusals(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	s, a := c.Step(s, in)
	if a.Op == core.NoOp && a.Why == core.Retrying && s.Phase == core.Following && s.Effort.Reads.Next <= in.Now.Mono {
		a.Op, s.Flight = core.Read, core.Call{Op: core.Read, Sent: in.Now, Learned: s.Learned}
		s.Effort.Reads.Next = in.Now.Mono.After(c.Retry / 8)
		return s, a
	}
	if a.Why == core.Retrying {
		a.Wake = min(a.Wake, in.Now.Mono.After(c.Retry/8))
	}
	return s, a
}

func conflictsWithoutPause(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	s.Effort.Writes.Conflicts, s.Effort.Asks.Conflicts = 0, 0
	return c.Step(s, in)
}

// conflictsWithNobody takes every conflict for one with another writer, who will not be there for long.
func conflictsWithNobody(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	s.Effort.Writes.Base, s.Effort.Asks.Base = 0, 0
	return c.Step(s, in)
}

// heedsAnyDelay stays away for as long as the server says.
func heedsAnyDelay(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	write := s.Flight.Op > core.Read
	s, a := c.Step(s, in)
	if in.Kind == core.Replied && in.Result == core.Refused && write && in.RetryAfter > 0 {
		s.Effort.Writes.Next = in.Now.Mono.After(in.RetryAfter)
		a.Wake = max(a.Wake, s.Effort.Writes.Next)
	}
	return s, a
}

// ringOfStamps knows its stored record by the last four stamps that it has tried.
func ringOfStamps(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	s.Own.Acked, s.Own.Unseen = 0, 0
	s, a := c.Step(s, in)
	if a.Op == core.Renew || a.Op == core.Acquire {
		s.Own.Stamps = [4]core.Stamp{s.Own.Stamps[0] + 1e6, s.Own.Stamps[0], s.Own.Stamps[1], s.Own.Stamps[2]}
		a.Record.Renewed, s.Flight.Record.Renewed = s.Own.Stamps[0], s.Own.Stamps[0]
	}
	return s, a
}

// renewsOnlyWhatItRead waits for a read before it renews, whatever becomes of the reads.
func renewsOnlyWhatItRead(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if s.Known.Outdated() {
		s.Effort.Writes.Conflicts = max(s.Effort.Writes.Conflicts, 1)
	}
	return c.Step(s, in)
}

// saysItAgain takes the trouble for over when it tries again.
func saysItAgain(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	s, a := c.Step(s, in)
	if in.Kind != core.Replied {
		s.Effort.Writes.Fails = 0
	}
	return s, a
}

// phaseFlutters looks for a moment as if it settled, each time that it cannot write.
func phaseFlutters(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if in.Kind == core.Replied && in.Result == core.Refused && s.Phase == core.Following {
		s, a := c.Step(s, in)
		s.Phase = core.Settling
		return s, a
	}
	return c.Step(s, in)
}

// answerPutOff looks for the answer to its request only when its watch has been silent, and
// forgets with each new leader how often it has asked.
func answerPutOff(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if in.Kind == core.Seen {
		s.Asking.AnsweredAt = in.Now.Mono.After(c.Retry / 2)
	}
	holder := s.Snap.Record.Holder
	s, a := c.Step(s, in)
	if s.Snap.Record.Holder != holder {
		s.Asking.NotBefore, s.Asking.Count = 0, 0
	}
	return s, a
}

func unsyncedAtOnce(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	c.SyncWait = 0
	return c.Step(s, in)
}

// countShifted counts on from the maximum, or begins below it.
func countShifted(by int) stepper {
	return func(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
		s, a := c.Step(s, in)
		if a.Op == core.Acquire && a.Record.Transitions == 1<<31-1 {
			a.Record.Transitions += by
			s.Flight.Record.Transitions = a.Record.Transitions
			if a.Notes.Marker.Identity == c.Self {
				a.Notes.Marker.Transitions = a.Record.Transitions
			}
		}
		return s, a
	}
}
