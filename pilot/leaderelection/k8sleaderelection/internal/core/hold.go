package core

import "time"

// Hold is an operator's order that the recorded holder stays, whatever its rank: a pause,
// or what a transfer leaves behind. The zero Hold is none. One that is not about the present
// term does not count.
type Hold struct {
	Holder      string
	Transitions int
	Seconds     int // for which it stands, as each reader counts from when it first saw it
	Requester   string
	Reason      string
	Note        string // the operator's own words
}

// HoldForPause and HoldForTransfer are a hold's reasons.
const (
	HoldForPause    = "pause"
	HoldForTransfer = "transfer"
)

// MaxHold bounds a hold: ranks that never count again would be a lock that nobody can upgrade.
const MaxHold = 7 * 24 * time.Hour

// holdTime is the duration that a hold's seconds stand for, within bounds.
func holdTime(seconds int) time.Duration {
	return time.Duration(min(max(seconds, 0), int(MaxHold/time.Second))) * time.Second
}

// names reports whether h is about the record's term.
func (h Hold) matches(r Record) bool { return r.isTerm(h.Holder, h.Transitions) }

// OnHold reports whether there is a hold about the present term that is not taken back. For how
// long it counts, each reader counts itself.
func (s Snapshot) OnHold() bool {
	return s.Held() && s.Annotations.Hold.matches(s.Record) && s.Annotations.Hold.Seconds > 0
}

// holdEnds is until when rank does not count in the present term; zero: it counts.
func (s State) holdEnds() Instant {
	h := s.Snap.Annotations.Hold
	if !s.Snap.Held() || !h.matches(s.Snap.Record) {
		return 0
	}
	return s.Since.Hold.After(holdTime(h.Seconds))
}

// keptHold is the hold to write beside our own record: one that stands. One that has
// run out ends for everybody when its holder leaves it out.
func (s State) activeHold(r Record, now Instant) Hold {
	if h := s.Snap.Annotations.Hold; h.matches(r) && now < s.holdEnds() {
		return h
	}
	return Hold{}
}

// transferred reports whether an operator has had us written in as holder.
func (c Config) transferred(s State) bool {
	h := s.Snap.Annotations.Hold
	return h.matches(s.Snap.Record) && h.Holder == c.Self && h.Reason == HoldForTransfer
}
