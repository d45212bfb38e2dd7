package core

import "incumbent.dev/incumbent/internal/record"

// holdEnds returns the time until which rank does not count in the present term. Zero: it counts.
func (s *Sight) holdEnds() Instant {
	h := s.Snap.Annotations.Hold
	if !s.Snap.Held() || !h.Matches(s.Snap.Record) {
		return 0
	}
	return s.Since.Hold.After(record.HoldTime(h.Seconds))
}

// activeHold returns the hold to write next to the own record. An expired hold is left out.
func (s *Sight) activeHold(r Record, now Instant) Hold {
	if h := s.Snap.Annotations.Hold; h.Matches(r) && now < s.holdEnds() {
		return h
	}
	return Hold{}
}

// transferred reports whether an operator had this candidate written as holder.
func (c Config) transferred(s *State) bool {
	h := s.Snap.Annotations.Hold
	return h.Matches(s.Snap.Record) && h.Holder == c.Self && h.Reason == record.HoldForTransfer
}
