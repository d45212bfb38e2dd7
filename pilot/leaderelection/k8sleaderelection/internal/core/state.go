package core

import "time"

// Config is what does not change in an elector's life. See LeaderElectionConfig for
// the meaning of what the two share.
type Config struct {
	Self, Key   string
	Lease       time.Duration // written into the record, in whole seconds
	Cover       time.Duration // how long an acknowledged write lets us act
	Retry       time.Duration // between a leader's writes, and between polls
	CallTimeout time.Duration // the longest that one call may take
	DrainLimit  time.Duration // after the end of cover
	StopLimit   time.Duration // after a stop, while the lease is kept
	PeerGrace   time.Duration // added to the lease of a holder without a valid marker
	Patience    time.Duration // that a leader has with its own watcher before it refuses a request
	Moment      time.Duration // by which lower ranks let a higher one go first
	Ranked      bool          // keys are revisions; false: nobody outranks
	External    bool          // a KeyComparisonFunc judges instead: see Input.Beats
	SyncWait    time.Duration // how long, from its first step, a ranked candidate waits for the default before it takes a lock
	Immediate   bool          // act at once after preempting, as Istio's elector does
	Release     bool          // a drained stop gives the lock up; false: it lapses
	OneCycle    bool          // a lost term ends the elector
}

// Phase is where a candidate stands.
type Phase uint8

const (
	// Following: not the holder, as far as we know, or not since our last term ended.
	// The record of somebody else is timed, and taken when that is allowed.
	Following Phase = iota
	// Settling: we hold and renew the lock, but an earlier holder may still act, so
	// nothing runs and the gate is shut. Settling is not given up early: a release
	// from here would tell others that nobody acts.
	Settling
	// Leading: our marker stands in the record and our cover lasts. Functions run.
	Leading
	// Draining: functions have been told to stop and have not all returned. While
	// the term is ours the lock is renewed; once Lost is set the gate is shut for good.
	Draining
	// Releasing: everything has returned, and the lock is being given up.
	Releasing
	// Done: stopped; no more inputs are expected.
	Done
)

var phaseNames = [...]string{"following", "settling", "leading", "draining", "releasing", "done"}

func (p Phase) String() string { return phaseNames[p] }

// Op is the one API call that an Action asks for.
type Op uint8

const (
	NoOp Op = iota
	// Read asks the store for the present object.
	Read
	// Acquire writes us in as holder, whoever stood there: it begins a term.
	Acquire
	// Renew writes our own record anew.
	Renew
	// Release writes an empty holder.
	Release
	// Ask writes a request beside the record of a leader that can hand over.
	Ask
	// HandOver writes the challenger in as holder, in place of a release.
	HandOver
)

var opNames = [...]string{"none", "read", "acquire", "renew", "release", "ask", "hand-over"}

func (o Op) String() string { return opNames[o] }

// Result is how a call ended.
type Result uint8

const (
	// OK: the store answered; Input.Snap is what it holds.
	OK Result = iota
	// Conflict: the store has moved on; nothing was written.
	Conflict
	// Unknown: no usable answer. A write may or may not have taken place, or may yet.
	Unknown
	// Refused: the server will not do it as things are (no permission, a quota, a policy,
	// too many requests). Nothing was written, and nothing was learned of the lock.
	Refused
)

var resultNames = [...]string{"ok", "conflict", "unknown", "refused"}

func (r Result) String() string { return resultNames[r] }

// Kind says what an Input reports.
type Kind uint8

const (
	// Tick: the wake-up that an Action asked for, or any other.
	Tick Kind = iota
	// Seen: a watch event.
	Seen
	// Replied: the call in flight has ended.
	Replied
	// DefaultChanged: the default revision as of now.
	DefaultChanged
	// Watching: a watch was accepted.
	Watching
	// Unwatched: the watch is down.
	Unwatched
	// Drained: every function of the term has returned.
	Drained
	// StepDown: the term must end although it could go on, e.g. a function failed.
	StepDown
	// Stop: the elector must end.
	Stop
	// Fitness: whether this process is fit to lead, as of now.
	Fitness
)

var kindNames = [...]string{"tick", "seen", "replied", "default", "watching", "unwatched", "drained", "step-down", "stop", "fitness"}

func (k Kind) String() string { return kindNames[k] }

// Input is one event and when the loop picked it up.
type Input struct {
	Now    Moment
	Kind   Kind
	Snap   Snapshot // Seen; Replied with OK
	Result Result   // Replied
	// RetryAfter is the server's wish, with Refused: it is heeded within bounds.
	RetryAfter time.Duration
	Default    Default // DefaultChanged
	Gap        bool    // Watching: changes before it may have been missed
	Unfit      bool    // Fitness
	Beats      bool    // with Config.External: we outrank the holder of the newest snapshot
	Jitter     uint8   // random, for the next poll: 255 is almost the whole of JitterFactor
}

// Term is one unbroken time of leadership. The zero Term is none.
type Term struct {
	UID         UID
	Transitions int
	Token       uint64 // the version of the term's first own write: the fencing token
}

// Call is the API call in flight.
type Call struct {
	Op        Op
	Sent      Moment
	Base      uint64 // the version that the write is guarded by
	Learned   uint32 // Learned of the state when it was sent
	Record    Record
	Marker    bool // the write carries our marker
	BeforeGap bool // a Read that was sent before the present watch began
}

// State is all that an elector knows. It is comparable: tests print and compare it.
type State struct {
	Phase    Phase
	Why      Reason // of the last phase change
	Stopping bool
	SyncBy   Instant // when waiting for the default revision ends; noted at the first step

	// What was seen of the lock.
	Known    bool
	Stale    bool // the snapshot is known to be behind
	Missed   bool // a watch began since the last read was sent: see gap
	Snap     Snapshot
	SeenAt   Instant // when the record last changed, as we saw it
	Learned  uint32  // counts changes of Snap
	AnswerAt Instant // when the store last answered: a watch may lag behind it
	PollAt   Instant
	Count    int // the last transitions that could be read
	Watch    bool
	Default  Default
	Beats    bool
	Twin     bool // another live process writes under our identity
	Doubt    bool // we may hold the lock by a write whose reply never came
	Unfit    bool // this process should not lead if another can

	// What earlier holders may still do.
	Prior      Instant // until when a holder whose term did not end well may act
	Away       Away    // the leader whose lock was deleted last
	EvidenceAt Instant // when the marker left behind was first seen

	// A request that stands beside the record.
	RequestAt Instant // when it was first seen
	AskAt     Instant // no request of ours before
	AskCount  uint8   // requests of ours in a row that have not made us leader, whoever was asked
	Asked     bool    // we have asked somebody for this lock and still want it

	// Ignored is for how long the holder has renewed beside requests of ours, in this term
	// and without an answer to anybody: see mute.
	Ignored time.Duration

	HoldAt Instant // when the operator's hold that stands was first seen

	// Our own writes.
	Flight   Call
	Mine     [4]Stamp // renew stamps of our latest writes, answered or not
	Acked    Stamp    // of the newest record of ours that was seen stored
	Unseen   uint8    // stamps in Mine that were made for the version that Snap still has
	Reads    Effort
	Writes   Effort  // of everything but requests
	Asks     Effort  // of requests
	Renewed  Instant // when our last acknowledged write was sent
	SettleAt Instant // settling ends here; noted when the write was sent

	// The term.
	Term      Term
	Cover     Cover
	Marked    bool          // our marker was acknowledged in this term: we may act
	Gone      bool          // the record was seen not to be this term's: it never is again
	Lost      bool          // the term is over: the gate never opens again in it
	Alive     bool          // functions were started and have not all returned
	StepDown  bool          // release although not stopped
	Giving    bool          // a request was accepted: drain and hand over
	Cool      time.Duration // for which we do not campaign after it
	LimitAt   Instant
	Overdue   bool    // the drain has outstayed its limit
	BackOff   Instant // no campaign before
	Steps     uint8   // step-downs in a row
	Spurned   bool    // preempted by an equal key; until the default changes
	Rebuffed  Instant // displaced by another: no preempting before, unless the default changes
	Rebuffs   uint8   // in a row, without having led
	BeganAt   Instant // when the term began
	ReleaseBy Instant
	Gave      bool // a release or handover was sent and may have been stored
}

// Away is a leader of ours whose lock object was deleted while it acted. When its own
// marker stands in the next object, its functions of before have returned.
type Away struct {
	Holder string
	Prior  Instant // State.Prior without it
	Until  Instant // and with it
}

// Action is the whole of what should be true now. Applying it twice is harmless.
type Action struct {
	Op     Op
	Base   Snapshot // the state the write is decided on and guarded by
	Record Record
	Notes  Notes
	Gate   Cover // writes may pass until here; zero: shut
	Work   bool  // run functions should be running
	Wake   Instant
	Why    Reason
}
