package simulation

import (
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// handoverBugs break a rule of the handover each.
var handoverBugs = []Bug{
	{"hand-over-before-drain", "handover", Release, each(handOverBeforeDrain)},
	{"acts-on-nomination", "handover", Cover, each(actsOnNomination)},
	{"other-terms-request", "handover-bad", Handover, each(otherTermsRequest)},
	{"old-marker-believed", "mixed", Handover, each(oldMarkerBelieved)},
	{"old-marker-ignored", "mixed", OneAtATime, each(oldMarkerIgnored)},
	{"old-term-again", "chaos", Token, oldTermAgain},
	{"drains-before-accepting", "handover", StepDown, each(drainsBeforeAccepting)},
	{"unknown-handover-undone", "handover-bad", Token, each(unknownHandoverUndone)},
	{"preempts-who-hands-over", "handover", Handover, each(preemptsWhoHandsOver)},
	{"nominee-passed-over", "handover", Handover, each(nomineePassedOver)},
	{"unasked-nominee", "handover", Handover, each(unaskedNominee)},
	{"asks-over-another", "handover", Handover, each(asksOverAnother)},
	{"accepts-anybody", "handover-bad", Handover, each(acceptsAnybody)},
	{"accepts-too-late", "handover-bad", Handover, each(acceptsTooLate)},
	{"promise-forgotten", "handover", Handover, each(promiseForgotten)},
	{"own-key-handed-over", "handover", Handover, each(ownKeyHandedOver)},
	{"marker-kept-at-release", "handover", Handover, each(markerKeptAtRelease)},
	{"marker-while-settling", "upgrade", Settling, each(markerWhileSettling)},
	{"settler-removes-marker", "mixed", Settling, each(settlerRemovesMarker)},
	{"never-accepts", "handover", Prompt, each(neverAccepts)},
	{"asks-for-ever", "namesake", Prompt, each(asksForEver)},
	{"mute-while-draining", "handover", Handover, each(muteWhileDraining)},
	{"nominee-waits-for-a-poll", "handover", Prompt, each(nomineeWaitsForAPoll)},
	{"lease-counted-twice", "orderly", Prompt, each(leaseShiftedBy(func(c core.Config, _ core.State, _ core.Input) time.Duration { return -2 * c.Lease }))},
	{"lower-goes-first", "upgrade", NoFlapping, each(lowerGoesFirst)},
	{"hold-ignored", "operator", Orders, each(holdIgnored)},
	{"hold-of-another-term", "operator", Orders, each(holdOfAnotherTerm)},
	{"operator-refused", "operator", Orders, each(operatorRefused)},
	{"unfit-campaigns", "operator", Fitness, each(unfitCampaigns)},
	{"unfit-gives-up", "operator", StepDown, each(unfitGivesUp)},
	{"duplicate-takes-back", "duplicates", NoFlapping, each(duplicateTakesBack)},
	{"equal-preempts-back", "external", NoFlapping, each(equalPreemptsBack)},
	{"preempts-back", "ranked", NoFlapping, each(preemptsBack)},
}

func handOverBeforeDrain(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if s.Phase == core.Draining && s.Drain.Kind.HandsOver() {
		s.Alive = false
	}
	return c.Step(s, in)
}

// actsOnNomination takes a nomination for the acknowledgement of a write of its own.
func actsOnNomination(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	mine := in.Snap.Notes.Nominated.Identity == c.Self && in.Snap.Record.Holder == c.Self
	if in.Kind == core.Seen && mine && s.Phase == core.Following && s.Flight.Op == core.NoOp {
		s.Flight = core.Call{Op: core.Acquire, Sent: in.Now, Learned: s.Learned, Record: in.Snap.Record, Marker: true}
		s.Own.Stamps[0], in.Snap.Notes.Nominated = in.Snap.Record.Renewed, core.Nomination{}
		s.Earlier.SettleAt = core.Never // who nominated it has ended well
		in.Kind, in.Result = core.Replied, core.OK
	}
	return c.Step(s, in)
}

// otherTermsRequest heeds a request whomever it is addressed to.
func otherTermsRequest(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if r := &in.Snap.Notes.Request; r.Identity != "" && in.Snap.Record.Holder == c.Self {
		r.Holder, r.Transitions = c.Self, in.Snap.Record.Transitions
	}
	return c.Step(s, in)
}

// oldMarkerBelieved takes any marker for the present holder's.
func oldMarkerBelieved(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if m := &in.Snap.Notes.Marker; m.Identity != "" && in.Snap.Record.Holder != "" {
		m.Identity, m.Transitions = in.Snap.Record.Holder, in.Snap.Record.Transitions
	}
	return c.Step(s, in)
}

// oldMarkerIgnored overlooks the marker of one of ours that a peer has displaced.
func oldMarkerIgnored(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if n := &in.Snap.Notes; !names(n.Marker, in.Snap.Record) {
		n.Marker = core.Marker{}
	}
	return c.Step(s, in)
}

// oldTermAgain goes on with the term that it lost when its own record is back.
func oldTermAgain() stepper {
	var lost core.State
	return func(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
		r := in.Snap.Record
		back := in.Kind == core.Seen || in.Kind == core.Replied && in.Result == core.OK
		if back && s.Phase == core.Following && lost.Term != (core.Term{}) && in.Snap.UID == lost.Term.UID &&
			r.Holder == c.Self && r.Transitions == lost.Term.Transitions && s.Flight.Op <= core.Read {
			lost.Flight, lost.Cover = s.Flight, in.Now.Plus(c.Cover)
			s, lost = lost, core.State{}
		}
		before := s
		s, a := c.Step(s, in)
		if before.Phase == core.Leading && s.Drain.Lost != core.NotLost {
			lost = before
		}
		return s, a
	}
}

// drainsBeforeAccepting takes a request that it would accept for one that it has
// accepted already.
func drainsBeforeAccepting(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if r := &in.Snap.Notes.Request; in.Kind == core.Seen && core.Outranks(r.Key, c.Key, s.Default) {
		r.Accepted = true
	}
	return c.Step(s, in)
}

// unknownHandoverUndone goes on leading when a handover was not answered.
func unknownHandoverUndone(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	unknown := in.Kind == core.Replied && in.Result == core.Unknown
	if unknown && s.Phase == core.Releasing && s.Flight.Op == core.HandOver && s.Cover.Left(in.Now) > 0 {
		s.Phase, s.Drain.Kind, s.Snap.Notes.Request = core.Leading, 0, core.Request{}
	}
	return c.Step(s, in)
}

func preemptsWhoHandsOver(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	in.Snap.Notes.Marker.Handover = false
	return c.Step(s, in)
}

func nomineePassedOver(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if n := s.Snap.Notes.Nominated.Identity; n != "" && n != c.Self && n == s.Snap.Record.Holder {
		s.Since.Record = min(s.Since.Record, in.Now.Mono-core.Instant(c.Retry))
	}
	return c.Step(s, in)
}

func unaskedNominee(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	s.Asking.Wanted = true
	return c.Step(s, in)
}

// asksOverAnother overlooks a request that stands beside the record of another.
func asksOverAnother(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if in.Snap.Record.Holder != c.Self {
		in.Snap.Notes.Request = core.Request{}
	}
	return c.Step(s, in)
}

// acceptsAnybody judges a request as if its challenger were of the default revision.
func acceptsAnybody(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if in.Snap.Record.Holder == c.Self && in.Snap.Notes.Request.Identity != "" {
		in.Snap.Notes.Request.Key = s.Default.Revision
	}
	return c.Step(s, in)
}

func acceptsTooLate(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if r := &in.Snap.Notes.Request; in.Snap.Record.Holder == c.Self && r.Identity != "" {
		r.Seconds = 3600
	}
	return c.Step(s, in)
}

// promiseForgotten releases where it should hand over.
func promiseForgotten(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if s.Phase == core.Draining && in.Kind == core.Drained {
		s.Snap.Notes.Request = core.Request{}
	}
	return c.Step(s, in)
}

func ownKeyHandedOver(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	s, a := c.Step(s, in)
	if a.Op == core.HandOver {
		a.Record.Key = c.Key
	}
	return s, a
}

func markerKeptAtRelease(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	s, a := c.Step(s, in)
	if a.Op == core.Release {
		a.Notes.Marker = a.Base.Notes.Marker
	}
	return s, a
}

func markerWhileSettling(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	s, a := c.Step(s, in)
	if s.Phase == core.Settling && a.Op == core.Renew {
		a.Notes.Marker = core.Marker{Identity: c.Self, Transitions: a.Record.Transitions, Handover: true}
	}
	return s, a
}

func settlerRemovesMarker(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	s, a := c.Step(s, in)
	if a.Op == core.Acquire && a.Notes.Marker.Identity != c.Self {
		a.Notes.Marker = core.Marker{}
	}
	return s, a
}

func neverAccepts(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if in.Snap.Record.Holder == c.Self {
		in.Snap.Notes.Request = core.Request{}
	}
	return c.Step(s, in)
}

// asksForEver takes a marker for its holder's, however long that does not answer.
func asksForEver(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	s.Asking.Ignored = 0
	return c.Step(s, in)
}

// muteWhileDraining leaves what it is asked without an answer while it drains for another
// reason, and is taken for a peer.
func muteWhileDraining(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if s.Phase == core.Draining && !s.Drain.Kind.HandsOver() {
		s.Since.Request = in.Now.Mono - core.Instant(time.Hour)
	}
	return c.Step(s, in)
}

func nomineeWaitsForAPoll(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if in.Kind == core.Seen && in.Snap.Notes.Nominated.Identity == c.Self {
		in = core.Input{Kind: core.Tick, Now: in.Now}
	}
	return c.Step(s, in)
}

func lowerGoesFirst(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	c.RankDelay = 0
	return c.Step(s, in)
}

func preemptsBack(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	s.Displaced.NotBefore = 0
	s, a := c.Step(s, in)
	if s.Displaced.NotBefore > in.Now.Mono && a.Op == core.NoOp {
		s.Displaced.NotBefore = 0
		return c.Step(s, core.Input{Kind: core.Tick, Now: in.Now, Beats: in.Beats})
	}
	return s, a
}

// holdIgnored lets rank count although an operator holds the holder.
func holdIgnored(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	in.Snap.Notes.Hold.Seconds = 0
	return c.Step(s, in)
}

// holdOfAnotherTerm heeds any hold, for as long as it finds one.
func holdOfAnotherTerm(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if h := &in.Snap.Notes.Hold; h.Holder != "" {
		h.Holder, h.Transitions, h.Seconds = in.Snap.Record.Holder, in.Snap.Record.Transitions, 3600
	}
	return c.Step(s, in)
}

func operatorRefused(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if in.Snap.Record.Holder == c.Self && in.Snap.Notes.Request.Reason == core.ForOperator {
		in.Snap.Notes.Request.Reason = core.ForDefaultRevision
	}
	return c.Step(s, in)
}

func unfitCampaigns(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if s.Phase == core.Following {
		s.Unfit, in.Unfit = false, false
	}
	return c.Step(s, in)
}

// unfitGivesUp releases the lock at once, whoever may be there to take it.
func unfitGivesUp(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	if in.Kind == core.Fitness && in.Unfit && s.Phase == core.Leading {
		s.Drain.Kind = core.DrainToStepDown
	}
	return c.Step(s, in)
}

// duplicateTakesBack takes any record in its own name for one that it may reclaim.
func duplicateTakesBack(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	s, a := c.Step(s, in)
	if s.Own.Duplicate && s.Phase == core.Following && a.Op == core.NoOp && s.Flight.Op == core.NoOp {
		s.Own.Duplicate, s.BackOff.Until = false, 0
		return c.Step(s, core.Input{Kind: core.Tick, Now: in.Now})
	}
	return s, a
}

func equalPreemptsBack(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
	s.Displaced.ByEqual = false
	return c.Step(s, in)
}
