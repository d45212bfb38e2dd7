package core

import "time"

// Config has an elector's constants. See LeaderElectionConfig for the meaning of the fields
// that both have.
type Config struct {
	Self, Key string
	Timing
	Ranked    bool // keys are revisions; false: nobody outranks
	External  bool // a KeyComparisonFunc judges instead: see Input.Beats
	Immediate bool // act at once after preempting, as Istio's elector does
	Release   bool // a drained stop gives the lock up; false: it lapses
	OneCycle  bool // a lost term ends the elector
	// Coordinated: a coordinator names the leader, candidates wait for that. See coordinated.go.
	Coordinated bool
	// Successor: the lock is a predecessor's, kept together with others. See predecessor.go.
	Successor bool
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
	// Draining: the functions' contexts have ended and not all have returned. While
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
	SendRequest
	// HandOver writes the challenger in as holder, in place of a release.
	HandOver
)

var opNames = [...]string{"none", "read", "acquire", "renew", "release", "request", "hand-over"}

func (o Op) String() string { return opNames[o] }

// Result is how a call ended.
type Result uint8

const (
	// OK: the store answered; Input.Snap shows the lock object.
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
	// Coordinator: whether the election's coordinator is known to be gone, as of now.
	Coordinator
)

var kindNames = [...]string{"tick", "seen", "replied", "default", "watching", "unwatched", "drained", "step-down", "stop", "fitness", "coordinator"}

func (k Kind) String() string { return kindNames[k] }

// Input is one event and when the loop picked it up.
type Input struct {
	Now    ClockReading
	Kind   Kind
	Snap   Snapshot // Seen; Replied with OK
	Result Result   // Replied
	// RetryAfter is the server's wish, with Refused: it is respected within bounds.
	RetryAfter time.Duration
	Default    DefaultRevision // DefaultChanged
	Gap        bool            // Watching: changes before it may have been missed
	Unfit      bool            // Fitness
	Absent     bool            // Coordinator: it is gone
	Beats      bool            // with Config.External: we outrank the holder of the newest snapshot
	Jitter     uint8           // random, for the next poll: 255 is almost the whole of JitterFactor
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
	Sent      ClockReading
	Base      uint64 // the version that the write is guarded by
	Learned   uint32 // Learned of the state when it was sent
	Record    Record
	Marker    bool // the write carries our marker
	BeforeGap bool // a Read that was sent before the present watch began
}

// Answered reports whether the input is the store's answer to the call, and what that wrote is
// stored. A write that changed nothing is no write.
func (c Call) Succeeded(in Input) bool {
	return in.Kind == Replied && in.Result == OK && (c.Op == Read || in.Snap.Version != c.Base)
}

// State is all that an elector knows. It is comparable: tests print and compare it.
type State struct {
	Phase    Phase
	Why      Reason  // of the last phase change
	Stopping bool    // the elector must end
	Unfit    bool    // this process should not lead if another can
	SyncBy   Instant // when waiting for the default revision ends; noted at the first step
	Absent   Instant // since when the coordinator is known to be gone; zero: it is not

	// What was seen of the lock.
	Known   Knowledge
	Snap    Snapshot
	Since   Since
	Learned uint32  // counts changes of Snap
	Count   int     // the last transitions that could be read
	PollAt  Instant // when the next poll is due
	Watch   bool    // a watch of the lock is up
	Default DefaultRevision
	Beats   bool // as the last Input said

	// Between terms.
	Earlier    Earlier
	Requesting Requests
	Displaced  Displaced
	BackOff    BackOff

	// Our own calls.
	Flight Call
	Effort Efforts
	Own    Own

	// The term.
	Term     Term
	Validity Validity
	Marked   bool    // our marker was acknowledged in this term: we may act
	Running  bool    // functions were started and have not all returned
	BeganAt  Instant // when the term began
	Drain    Drain
}

// Gate is until when writes may pass: the cover, in a term that has lost nothing. Zero: they may not.
func (s State) Gate() Validity {
	if s.Phase == Leading || s.Phase == Draining && s.Drain.Lost == NotLost {
		return s.Validity
	}
	return Validity{}
}

// Knowledge says how far Snap is known to be current.
type Knowledge uint8

const (
	// Unread: nothing; the lock was not read yet.
	Unread Knowledge = iota
	// Current: Snap is the newest that a watch event or an answer has shown.
	Current
	// Behind: Snap is known to be behind. It is good for nothing but a renewal, which is
	// guarded by its version.
	Stale
	// BehindGap: likewise, and a watch began since the last read was sent. What is gone by then makes no event: only
	// a read that was sent since shows it. Of two objects one may be gone while the other's events
	// go on. The first read of all may have been sent before: a cycle begins with both.
	StaleGap
)

// Outdated reports whether a snapshot is known, and to be behind.
func (k Knowledge) Outdated() bool { return k >= Stale }

// Since is when what the lock shows was first seen to be as it is.
type Since struct {
	Record  Instant // when it last changed, as we saw it
	Request Instant
	Hold    Instant // the operator's
	Former  Instant // the marker left behind
}

// Earlier says until when earlier holders may still act.
type Earlier struct {
	Until    Instant // a holder whose term did not end well may act
	Away     Away    // the leader whose lock was deleted last
	SettleAt Instant // settling ends here; noted when the acquiring write was sent
}

// Requests is how far we are with having a leader hand over to us.
type Requests struct {
	Wanted     bool    // we have asked somebody for this lock and still want it
	NotBefore  Instant // no request of ours
	Count      uint32  // requests of ours in a row that have not made us leader, whoever was asked
	AnsweredAt Instant // when the store last answered: a watch may lag behind it
	// Ignored is for how long the holder has renewed beside requests of ours, in this term
	// and without an answer to anybody: see ignoresRequests.
	Ignored time.Duration
}

// Displaced restrains a candidate whose lock another has taken, until the default changes.
type Displaced struct {
	NotBefore Instant // it preempts nobody
	Times     uint8   // in a row, without having led
	ByEqual   bool    // by an equal key: it does not preempt such a one
}

// BackOff keeps one from campaigning.
type BackOff struct {
	Until Instant
	Steps uint8 // step-downs in a row
}

// Own keeps account of the writes in our name.
type Own struct {
	Stamps  [4]Stamp // renew stamps of the latest, answered or not
	Unseen  uint8    // stamps among those that were made for the version that Snap still has
	Acked   Stamp    // of the newest record of ours that was seen stored
	Renewed Instant  // when the last acknowledged one was sent
	// AcquireUnknown: we may hold the lock by a write whose reply never came.
	AcquireUnknown bool
	// Duplicate: another live process writes in our name.
	Duplicate bool
}

// Drain is how a term comes to its end: what becomes of the lock, what is left of the right
// to it, and by when. Zero: nothing was said of an end.
type Drain struct {
	Kind     DrainKind
	Lost     Loss
	Until    Instant       // by when functions are to return or, in Releasing, the lock is to be given up
	Overdue  bool          // functions have outstayed that
	CoolDown time.Duration // for which we do not campaign afterwards
	Sent     bool          // a release or handover was sent and may have been stored
}

// DrainKind is the purpose of a drain. It can be both: a request was accepted by a leader that was
// stepping down. Zero: the elector stops, or the term is lost.
type DrainKind uint8

const (
	// DrainToStepDown: the lock is released although the elector goes on, which then
	// does not campaign until BackOff.Until.
	DrainToStepDown DrainKind = 1 << iota
	// DrainToHandOver: a request was accepted.
	DrainToHandOver
)

// stepsDown reports whether a back-off is to follow.
func (k DrainKind) stepsDown() bool { return k&DrainToStepDown != 0 }

// HandsOver reports whether a request was accepted.
func (k DrainKind) HandsOver() bool { return k&DrainToHandOver != 0 }

// Loss says whether, and how, a term has lost its right to act. The gate never opens again in one that has.
type Loss uint8

const (
	NotLost Loss = iota
	// CoverLost: its cover has ended. The record is renewed until the functions have returned.
	ValidityLost
	// RecordLost: the record was seen not to be this term's. It never is again.
	RecordLost
)

// Away is a leader of ours whose lock object was deleted while it acted. When its own
// marker stands in the next object, its functions of before have returned.
type Away struct {
	Holder string
	Prior  Instant // Earlier.Until without it
	Until  Instant // and with it
}

// Action is the whole of what should be true now. Applying it twice is harmless.
type Action struct {
	Op          Op
	Base        Snapshot // the state the write is decided on and guarded by
	Record      Record
	Annotations Annotations
	Gate        Validity // writes may pass until here; zero: shut
	Run         bool     // run functions should be running
	Wake        Instant
	Why         Reason
}
