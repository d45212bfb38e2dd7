package simulation

import (
	"time"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// handoverBugs break the rules of handovers, holds and rank.
var handoverBugs = []Bug{
	{"hand-over-before-drain", "handover", Release, before(func(x *decision) {
		x.s.Running = x.s.Running && (x.s.Phase != core.Draining || !x.s.Drain.HandOver)
	})},
	{"leads-on-nomination", "handover", Validity, before(leadOnNomination)},
	{"request-to-other-term", "annotations", Handover, before(func(x *decision) {
		if r := &x.in.Snap.Annotations.Request; r.Identity != "" && holds(x) {
			r.Holder, r.Transitions = x.c.Self, x.in.Snap.Record.Transitions
		}
	})},
	{"any-marker-counts", "mixed", Handover, before(func(x *decision) {
		if m := &x.in.Snap.Annotations.Marker; m.Identity != "" && x.in.Snap.Record.Holder != "" {
			m.Identity, m.Transitions = x.in.Snap.Record.Holder, x.in.Snap.Record.Transitions
		}
	})},
	{"former-marker-ignored", "mixed", OneAtATime, before(func(x *decision) {
		if n := &x.in.Snap.Annotations; !names(n.Marker, x.in.Snap.Record) {
			n.Marker = core.Marker{}
		}
	})},
	{"settles-for-any-lease", "strangers", Prompt, after(func(x *decision) {
		if m := x.s.Snap.Annotations.Marker; m.Identity != "" && !names(m, x.s.Snap.Record) && m.Identity != x.c.Self {
			x.s.Earlier.Former = max(x.s.Earlier.Former, x.s.Since.Former.After(x.s.Snap.Record.Lease))
		}
	})},
	// A follower counts the lease of a peer although another leader has waited and has released the lock.
	{"peer-lease-outlives-record", "strangers", Prompt, after(func(x *decision) {
		gone, next := x.old.Snap, x.s.Snap
		if gone.Held() && gone.Record.Lease > x.c.Lease+2*time.Second && gone.Record.Holder != stranger && next.Held() && next.Record.Holder != gone.Record.Holder && next.Record.Holder != x.c.Self {
			x.s.Earlier.Until = max(x.s.Earlier.Until, x.old.Since.Record.After(gone.Record.Lease))
		}
	})},
	{"lost-term-resumed", "chaos", Token, lostTermResumed},
	{"drains-before-accepting", "handover", StepDown, before(func(x *decision) {
		if r := &x.in.Snap.Annotations.Request; x.in.Kind == core.Seen && core.Outranks(r.Key, x.c.Key, x.s.Default) {
			r.Accepted = true
		}
	})},
	{"leads-after-unknown-handover", "handover-bad", Token, before(func(x *decision) {
		unknown := x.in.Kind == core.Replied && x.in.Result == core.Unknown
		if unknown && x.s.Phase == core.Releasing && x.s.Flight.Op == core.HandOver && x.s.Validity.Left(x.in.Now) > 0 {
			x.s.Phase, x.s.Drain.StepDown, x.s.Drain.HandOver, x.s.Snap.Annotations.Request = core.Leading, false, false, core.Request{}
		}
	})},
	{"preempts-despite-handover", "handover", Handover, before(func(x *decision) { x.in.Snap.Annotations.Marker.Handover = false })},
	{"acquires-from-nominee", "handover", Handover, before(func(x *decision) {
		if n := x.s.Snap.Annotations.Nominated.Identity; n != "" && n != x.c.Self && n == x.s.Snap.Record.Holder {
			x.s.Since.Record = min(x.s.Since.Record, x.in.Now.Mono-core.Instant(x.c.Retry))
		}
	})},
	{"accepts-any-nomination", "handover", Handover, before(func(x *decision) { x.s.Requesting.Wanted = true })},
	{"overwrites-request", "handover", Handover, beforeIf(func(x *decision) bool { return !holds(x) }, func(x *decision) { x.in.Snap.Annotations.Request = core.Request{} })},
	{"accepts-any-rank", "handover-bad", Handover, beforeIf(func(x *decision) bool { return holds(x) && x.in.Snap.Annotations.Request.Identity != "" }, func(x *decision) {
		x.in.Snap.Annotations.Request.Key = x.s.Default.Revision
	})},
	{"accepts-expired-request", "handover-bad", Handover, before(func(x *decision) {
		if r := &x.in.Snap.Annotations.Request; holds(x) && r.Identity != "" {
			r.Seconds = 3600
		}
	})},
	{"releases-after-accepting", "handover", Handover, beforeIf(func(x *decision) bool { return x.s.Phase == core.Draining && x.in.Kind == core.Drained }, func(x *decision) {
		x.s.Snap.Annotations.Request = core.Request{}
	})},
	{"hands-over-own-key", "handover", Handover, afterIf(func(x *decision) bool { return x.a.Op == core.HandOver }, func(x *decision) { x.a.Record.Key = x.c.Key })},
	{"release-keeps-marker", "handover", Handover, afterIf(func(x *decision) bool { return x.a.Op == core.Release }, func(x *decision) { x.a.Annotations.Marker = x.a.Base.Annotations.Marker })},
	{"marker-while-settling", "upgrade", Settling, afterIf(func(x *decision) bool { return x.s.Phase == core.Settling && x.a.Op == core.Renew }, func(x *decision) {
		x.a.Annotations.Marker = core.Marker{Identity: x.c.Self, Transitions: x.a.Record.Transitions, Handover: true}
	})},
	{"settling-removes-marker", "mixed", Settling, afterIf(func(x *decision) bool { return x.a.Op == core.Acquire && x.a.Annotations.Marker.Identity != x.c.Self }, func(x *decision) {
		x.a.Annotations.Marker = core.Marker{}
	})},
	{"never-accepts", "handover", Prompt, beforeIf(func(x *decision) bool { return holds(x) }, func(x *decision) { x.in.Snap.Annotations.Request = core.Request{} })},
	{"requests-without-end", "namesake", Prompt, before(func(x *decision) { x.s.Requesting.Ignored = 0 })},
	{"no-answer-while-draining", "handover-bad", Handover, beforeIf(func(x *decision) bool { return x.s.Phase == core.Draining && !x.s.Drain.HandOver }, func(x *decision) {
		x.s.Since.Request = x.in.Now.Mono - core.Instant(time.Hour)
	})},
	{"nomination-needs-poll", "handover", Prompt, beforeIf(func(x *decision) bool {
		return x.in.Kind == core.Seen && x.in.Snap.Annotations.Nominated.Identity == x.c.Self
	}, (*decision).ignoreInput)},
	{"no-rank-delay", "upgrade", NoFlapping, before(func(x *decision) { x.c.RankDelay = 0 })},
	{"hold-ignored", "operator", Orders, before(func(x *decision) { x.in.Snap.Annotations.Hold.Seconds = 0 })},
	{"hold-of-other-term", "operator", Orders, before(func(x *decision) {
		if h, r := &x.in.Snap.Annotations.Hold, x.in.Snap.Record; h.Holder != "" {
			h.Holder, h.Transitions, h.Seconds = r.Holder, r.Transitions, 3600
		}
	})},
	{"operator-refused", "operator", Orders, before(func(x *decision) {
		if r := &x.in.Snap.Annotations.Request; holds(x) && r.Reason == record.ForOperator {
			r.Reason = record.ForDefaultRevision
		}
	})},
	{"unfit-campaigns", "operator", Fitness, beforeIf(func(x *decision) bool { return x.s.Phase == core.Following }, func(x *decision) { x.s.Unfit, x.in.Unfit = false, false })},
	{"unfit-steps-down", "operator", StepDown, beforeIf(func(x *decision) bool { return x.in.Kind == core.Fitness && x.in.Unfit && x.s.Phase == core.Leading }, func(x *decision) {
		x.s.Drain.StepDown = true
	})},
	{"acts-beside-own-name", "duplicates", OneAtATime, before(func(x *decision) {
		if x.s.Phase == core.Settling {
			x.s.Earlier.SettleAt = 0
		}
	})},
	{"duplicate-reclaims", "duplicates", NoFlapping, afterIf(func(x *decision) bool {
		return x.s.Own.Duplicate && x.s.Phase == core.Following && x.a.Op == core.NoOp && x.s.Flight.Op == core.NoOp
	}, func(x *decision) {
		x.s.Own.Duplicate, x.s.BackOff.Until = false, 0
		x.again()
	})},
	{"equal-key-preempts-back", "external", NoFlapping, before(func(x *decision) { x.s.Displaced.ByEqual = false })},
	// The annotation alone is believed: not its marker, and neither the lease nor the change of the record.
	{"nomination-without-record", "annotations", OneAtATime, before(func(x *decision) {
		if a := &x.in.Snap.Annotations; a.Nominated.Identity != "" && names(a.Marker, core.Record{Holder: a.Nominated.Identity, Transitions: x.in.Snap.Record.Transitions}) {
			a.Marker, x.in.Snap.Record.Lease = core.Marker{}, x.c.Lease+time.Second
			x.s.Snap.Annotations, x.s.Snap.Record = *a, x.in.Snap.Record
		}
	})},
	{"cool-down-without-bound", "annotations", Prompt, after(func(x *decision) {
		x.s.BackOff.Until = max(x.s.BackOff.Until, x.s.BackOff.CoolDown)
	})},
	{"failed-nominee-forgotten", "barred", Changes, before(func(x *decision) { x.s.Failed = core.FailedNominees{} })},
	{"preempts-back", "ranked", NoFlapping, around(func(x *decision) { x.s.Displaced.NotBefore = 0 }, func(x *decision) {
		if x.s.Displaced.NotBefore > x.in.Now.Mono && x.a.Op == core.NoOp {
			x.s.Displaced.NotBefore = 0
			x.again()
		}
	})},
}

// holds reports whether the input shows the candidate as holder.
func holds(x *decision) bool { return x.in.Snap.Record.Holder == x.c.Self }

// leadOnNomination treats a nomination as the acknowledgement of an own write.
func leadOnNomination(x *decision) {
	nominated := x.in.Snap.Annotations.Nominated.Identity == x.c.Self && holds(x)
	if x.in.Kind != core.Seen || !nominated || x.s.Phase != core.Following || x.s.Flight.Op != core.NoOp {
		return
	}
	x.s.Flight = core.Call{Op: core.Acquire, Sent: x.in.Now, Learned: x.s.Learned, Record: x.in.Snap.Record, Marker: true}
	x.s.Own.Writes[0] = writeOf(x.in.Snap.Record)
	x.in.Snap.Annotations.Nominated = core.Nomination{}
	x.s.Earlier.SettleAt = core.Never // the previous leader has drained
	x.in.Kind, x.in.Result = core.Replied, core.OK
}

// lostTermResumed continues a lost term when the candidate's own record is back.
func lostTermResumed() stepper {
	var lost core.State
	return func(c core.Config, s core.State, in core.Input) (core.State, core.Action) {
		r := in.Snap.Record
		shown := in.Kind == core.Seen || in.Kind == core.Replied && in.Result == core.OK
		if shown && s.Phase == core.Following && lost.Term != (core.Term{}) && in.Snap.UID == lost.Term.LockUID &&
			r.Holder == c.Self && r.Transitions == lost.Term.Transitions && s.Flight.Op <= core.Read {
			lost.Flight, lost.Validity = s.Flight, in.Now.Plus(c.Validity)
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
