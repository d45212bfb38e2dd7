package core

import "time"

// Timing has all durations for decisions. Package derive computes the lower fields that are zero.
type Timing struct {
	Lease     time.Duration // in the record, in whole seconds
	Validity  time.Duration // from the send time of an acknowledged write
	Retry     time.Duration // between the writes of a leader, and between polls
	PeerGrace time.Duration // added to the lease of a holder without a valid marker
	SyncWait  time.Duration // from the first step; a ranked candidate waits this long for the default before it acquires a lock

	DrainLimit time.Duration // after the end of validity
	StopLimit  time.Duration // after a stop, while the lease is kept

	CallTimeout time.Duration // limit of one call
	Patience    time.Duration // time for the own watcher of a leader before it refuses a request
	RankDelay   time.Duration // delay of lower ranks
}
