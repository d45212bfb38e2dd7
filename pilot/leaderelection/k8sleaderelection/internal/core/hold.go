package core

import "time"

// Hold is an operator's word that the recorded holder stays, whatever its rank: a pause,
// or what a transfer leaves behind. The zero Hold is none. Nobody believes one that is
// not about the present term.
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

// maxHoldSeconds bounds a hold: ranks that never count again would be a lock that
// nobody can upgrade.
const maxHoldSeconds = 7 * 24 * 3600

// names reports whether h is about the record's term.
func (h Hold) names(r Record) bool {
	return h.Holder != "" && h.Holder == r.Holder && h.Transitions == r.Transitions
}

// holdEnds is until when rank does not count in the present term; zero: it counts.
func (s State) holdEnds() Instant {
	h := s.Snap.Notes.Hold
	if !s.Snap.held() || !h.names(s.Snap.Record) {
		return 0
	}
	seconds := min(max(h.Seconds, 0), maxHoldSeconds)
	return s.Since.Hold.After(time.Duration(seconds) * time.Second)
}

// keptHold is the hold to write beside our own record: one that stands. One that has
// run out ends for everybody when its holder leaves it out.
func (s State) keptHold(r Record, now Instant) Hold {
	if h := s.Snap.Notes.Hold; h.names(r) && now < s.holdEnds() {
		return h
	}
	return Hold{}
}

// transferred reports whether an operator has had us written in as holder.
func (c Config) transferred(s State) bool {
	h := s.Snap.Notes.Hold
	return h.names(s.Snap.Record) && h.Holder == c.Self && h.Reason == HoldForTransfer
}
