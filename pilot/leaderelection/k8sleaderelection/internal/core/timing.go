package core

import "time"

// Timing is every duration that decisions are made by. The first are a user's; what is left at
// zero of the rest follows from them: see package derive.
type Timing struct {
	Lease     time.Duration // written into the record, in whole seconds
	Validity  time.Duration // how long an acknowledged write lets us act
	Retry     time.Duration // between a leader's writes, and between polls
	PeerGrace time.Duration // added to the lease of a holder without a valid marker
	SyncWait  time.Duration // how long, from its first step, a ranked candidate waits for the default before it takes a lock

	DrainLimit time.Duration // after the end of cover
	StopLimit  time.Duration // after a stop, while the lease is kept

	CallTimeout time.Duration // the longest that one call may take
	Patience    time.Duration // that a leader has with its own watcher before it refuses a request
	RankDelay   time.Duration // by which lower ranks let a higher one go first
}
