package core

import "time"

// Hold is a command of an operator: the recorded holder stays regardless of rank. It is a pause, or the result
// of a transfer. The zero value is no hold. It counts only for the present term.
type Hold struct {
	Holder      string `json:"holder"`
	Transitions int    `json:"transitions"`
	Seconds     int    `json:"seconds"` // duration, counted by each reader from when it was first seen
	Requester   string `json:"requester"`
	Reason      string `json:"reason"`
	Note        string `json:"note,omitempty"` // text of the operator
}

// Reasons of a hold.
const (
	HoldForPause    = "pause"
	HoldForTransfer = "transfer"
)

// MaxHold limits a hold, so that an upgrade is not blocked forever.
const MaxHold = 7 * 24 * time.Hour

// holdTime returns the duration of a hold within bounds.
func holdTime(seconds int) time.Duration {
	return time.Duration(min(max(seconds, 0), int(MaxHold/time.Second))) * time.Second
}

// Bounded returns the hold with the duration that candidates apply.
func (h Hold) Bounded() Hold {
	h.Seconds = int(holdTime(h.Seconds) / time.Second)
	return h
}

// matches reports whether the hold is for the term of the record.
func (h Hold) matches(r Record) bool { return r.isTerm(h.Holder, h.Transitions) }

// OnHold reports whether there is a hold for the present term. It does not check its duration.
func (s Snapshot) OnHold() bool {
	return s.Held() && s.Annotations.Hold.matches(s.Record) && s.Annotations.Hold.Seconds > 0
}

// holdEnds returns the time until which rank does not count in the present term. Zero: it counts.
func (s State) holdEnds() Instant {
	h := s.Snap.Annotations.Hold
	if !s.Snap.Held() || !h.matches(s.Snap.Record) {
		return 0
	}
	return s.Since.Hold.After(holdTime(h.Seconds))
}

// activeHold returns the hold to write next to the own record. An expired hold is left out.
func (s State) activeHold(r Record, now Instant) Hold {
	if h := s.Snap.Annotations.Hold; h.matches(r) && now < s.holdEnds() {
		return h
	}
	return Hold{}
}

// transferred reports whether an operator had this candidate written as holder.
func (c Config) transferred(s State) bool {
	h := s.Snap.Annotations.Hold
	return h.matches(s.Snap.Record) && h.Holder == c.Self && h.Reason == HoldForTransfer
}
