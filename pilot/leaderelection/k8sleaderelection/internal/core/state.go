package core

import "time"

// Config has the constants of an elector. LeaderElectionConfig documents the fields that both have.
type Config struct {
	Self, Key string
	Timing
	Ranked    bool // keys are revisions; if false, no candidate outranks another
	External  bool // a KeyComparisonFunc compares instead: see Input.Beats
	Immediate bool // act immediately after preempting, as Istio's elector does
	Release   bool // release after a drained stop; if false, the lease expires
	OneCycle  bool // a lost term ends the elector
	// Coordinated: a coordinator names the leader. See coordinated.go.
	Coordinated bool
	Resolution  Stamp // unit of the times in the lock; zero: a second
}

// Phase is the phase of a candidate.
type Phase uint8

const (
	// Following: this candidate is not the holder, or has not been since its last term ended.
	Following Phase = iota
	// Settling: this candidate holds and renews the lock, but an earlier holder may still act. Run functions
	// do not run and the gate is closed. Settling never releases, because a release would show that no process
	// acts.
	Settling
	// Leading: the record has the marker of this term, the validity has not ended, and run functions run.
	Leading
	// Draining: the contexts of the run functions are cancelled and not all have returned. The lock is renewed
	// while the record belongs to the term. After Lost is set, the gate stays closed.
	Draining
	// Releasing: all run functions have returned, and the lock is being released.
	Releasing
	// Done: stopped. No more inputs are expected.
	Done
)

var phaseNames = [...]string{"following", "settling", "leading", "draining", "releasing", "done"}

func (p Phase) String() string { return phaseNames[p] }

// Op is the API call of an Action.
type Op uint8

const (
	NoOp Op = iota
	// Read reads the lock object.
	Read
	// Acquire writes this candidate as holder and begins a term.
	Acquire
	// Renew writes the own record again.
	Renew
	// Release writes an empty holder.
	Release
	// SendRequest writes a handover request next to the record of a leader.
	SendRequest
	// HandOver writes the challenger as holder instead of a release.
	HandOver
)

var opNames = [...]string{"none", "read", "acquire", "renew", "release", "request", "hand-over"}

func (o Op) String() string { return opNames[o] }

// Result is the result of a call.
type Result uint8

const (
	// OK: the store replied. Input.Snap has the lock object.
	OK Result = iota
	// Conflict: the version did not match. Nothing was written.
	Conflict
	// Unknown: no usable reply. The write may have been stored, or may be stored later.
	Unknown
	// Refused: the server rejected the call (missing permission, quota, policy, too many requests). Nothing
	// was written.
	Refused
)

var resultNames = [...]string{"ok", "conflict", "unknown", "refused"}

func (r Result) String() string { return resultNames[r] }

// Kind is the kind of an Input.
type Kind uint8

const (
	// Tick: a wake-up.
	Tick Kind = iota
	// Seen: a watch event.
	Seen
	// Replied: the call in flight has ended.
	Replied
	// DefaultChanged: the present default revision.
	DefaultChanged
	// Watching: a watch was opened.
	Watching
	// Unwatched: the watch is down.
	Unwatched
	// Drained: all run functions of the term have returned.
	Drained
	// StepDown: the term must end, for example because a run function failed.
	StepDown
	// Stop: the elector must end.
	Stop
	// Fitness: whether this process is fit to lead.
	Fitness
	// Coordinator: whether the coordinator of the election is absent.
	Coordinator
	// Bar: whether this candidate may not campaign.
	Bar
)

var kindNames = [...]string{"tick", "seen", "replied", "default", "watching", "unwatched", "drained", "step-down", "stop", "fitness", "coordinator", "bar"}

func (k Kind) String() string { return kindNames[k] }

// Input is one event with the time at which the loop received it.
type Input struct {
	Now    ClockReading
	Kind   Kind
	Snap   Snapshot // Seen; Replied with OK
	Result Result   // Replied
	// RetryAfter is the Retry-After of a refusal. It applies within bounds.
	RetryAfter time.Duration
	Default    DefaultRevision // DefaultChanged
	Gap        bool            // Watching: changes may have been missed before it
	Unfit      bool            // Fitness
	Absent     bool            // Coordinator: it is gone
	Barred     bool            // Bar
	Beats      bool            // with Config.External: this candidate outranks the holder of the newest snapshot
	Jitter     uint8           // random delay of the next poll; 255 is almost all of JitterFactor
}

// Term is an uninterrupted period of leadership. The zero value is no term.
type Term struct {
	UID         string
	Transitions int
	Token       uint64 // version of the first own write of the term: the fencing token
}

// Call is the API call in flight.
type Call struct {
	Op        Op
	Sent      ClockReading
	Base      uint64 // version that guards the write
	Learned   uint32 // State.Learned when the call was sent
	Record    Record
	Marker    bool // the write has the own marker
	BeforeGap bool // a Read that was sent before the present watch began
}

// Succeeded reports whether the input is the successful reply to the call. A write that did not change the
// version does not count.
func (c Call) Succeeded(in Input) bool {
	return in.Kind == Replied && in.Result == OK && (c.Op == Read || in.Snap.Version != c.Base)
}

// State is the whole state of an elector. It is comparable.
type State struct {
	Phase    Phase
	Why      Reason  // reason of the last phase change
	Stopping bool    // the elector must end
	Unfit    bool    // this process should not lead if another candidate can
	Barred   bool    // it observes the lock and does not campaign; a term ends with a release
	SyncBy   Instant // end of the wait for the default revision, set at the first step
	Absent   Instant // since when the coordinator is absent; zero: it is not
	// CoordinatorSeen: a coordinator has named a holder. Without that, a strategy may be the work of a stranger.
	CoordinatorSeen bool

	// Observations of the lock.
	Known   Knowledge
	Snap    Snapshot
	Since   Since
	Learned uint32  // number of changes of Snap
	Count   int     // last transitions that could be read
	PollAt  Instant // next poll
	Watch   bool    // a watch is up
	Default DefaultRevision
	Beats   bool // of the last Input

	// Between terms.
	Earlier    Earlier
	Requesting Requests
	Displaced  Displaced
	Failed     FailedNominees
	BackOff    BackOff

	// Own calls.
	Flight Call
	Effort Efforts
	Own    Own

	// The term.
	Term     Term
	Validity Validity
	Marked   bool    // the own marker was acknowledged in this term
	Running  bool    // run functions were started and have not all returned
	BeganAt  Instant // start of the term
	GiveWay  bool    // a coordinator has begun to prefer another candidate in this term
	Drain    Drain
}

// Gate returns the time until which writes may pass. Zero: the gate is closed.
func (s State) Gate() Validity {
	if s.Phase == Leading || s.Phase == Draining && s.Drain.Lost == NotLost {
		return s.Validity
	}
	return Validity{}
}

// Knowledge is how current Snap is.
type Knowledge uint8

const (
	// Unread: the lock was not read yet.
	Unread Knowledge = iota
	// Current: Snap is the newest that an event or reply showed.
	Current
	// Stale: a newer version exists. Snap can only be used for a renewal, which is guarded by its version.
	Stale
	// StaleGap: Stale, and a watch began after the last read was sent. Only a read that was sent later shows
	// objects that were deleted before the watch.
	StaleGap
)

// Outdated reports whether a newer version exists.
func (k Knowledge) Outdated() bool { return k >= Stale }

// Since has the times at which parts of the lock were first seen as they are.
type Since struct {
	Record  Instant // last change of the record
	Request Instant
	Hold    Instant // last change of the hold
	Former  Instant // last change of the marker of another term
	Idle    Instant // the lock had no holder that has written, since then

	Preferred Instant // last change of the candidate that a coordinator prefers
}

// Earlier is the time until which earlier holders may still act.
type Earlier struct {
	Until    Instant // a holder whose term did not end well may act until then
	Away     Away    // leader whose lock was deleted last
	SettleAt Instant // end of settling, set when the acquiring write was sent
}

// Requests is the state of the own handover requests.
type Requests struct {
	Wanted     bool    // this candidate has sent a request and still wants the lock
	NotBefore  Instant // no request before
	Count      uint32  // own requests in a row that did not lead to a term
	AnsweredAt Instant // last reply of the store; a watch may be later
	// Ignored is the time during which the holder renewed without answering own requests: see ignoresRequests.
	Ignored time.Duration
}

// Displaced delays a candidate that lost its lock to another one, until the default changes.
type Displaced struct {
	NotBefore Instant // no preempting before
	Times     uint8   // in a row, without a term in between
	ByEqual   bool    // by an equal key, which must not be preempted
}

// BackOff is a time without campaigning.
type BackOff struct {
	Until    Instant
	CoolDown Instant // the same by a request; it does not apply while no other candidate acquires the lock
	Steps    uint8   // step-downs in a row
}

// Own has the writes in the name of this candidate.
type Own struct {
	Stamps  [4]Stamp // renew stamps of the latest writes, with or without reply
	Unseen  uint8    // number of Stamps that were made for the present version
	Acked   Stamp    // stamp of the newest own record that was seen stored
	Renewed Instant  // send time of the last acknowledged write
	// AcquireUnknown: an acquire without reply may have been stored.
	AcquireUnknown bool
	// Duplicate: another live process writes with this identity.
	Duplicate bool
}

// Drain is the state of the end of a term. It can be both a step-down and a handover. If neither, the elector
// stops, or the term is lost.
type Drain struct {
	StepDown bool // the lock is released although the elector continues; a back-off follows
	HandOver bool // a request was accepted
	Lost     Loss
	Until    Instant       // deadline of the run functions or, in Releasing, of the release
	Overdue  bool          // run functions did not return within the limit
	CoolDown time.Duration // time without campaigning afterwards
	Sent     bool          // a release or handover was sent and may have been stored
}

// Loss is how a term lost its right to act. The gate of a lost term never opens again.
type Loss uint8

const (
	NotLost Loss = iota
	// ValidityLost: the validity has ended. The record is renewed until the run functions have returned.
	ValidityLost
	// RecordLost: the record was seen not to belong to this term. This is final.
	RecordLost
)

// Away is an incumbent leader whose lock object was deleted while it acted. If its own marker is in the next
// object, its previous run functions have returned.
type Away struct {
	Holder string
	Prior  Instant // Earlier.Until without this leader
	Until  Instant // Earlier.Until with this leader
}

// Action is the complete desired state. Applying it twice is harmless.
type Action struct {
	Op          Op
	Base        Snapshot // snapshot that the write is decided on and guarded by
	Record      Record
	Annotations Annotations
	Unprefer    bool     // the write removes the preference of a coordinator
	Gate        Validity // writes may pass until then; zero: closed
	Run         bool     // run functions should be running
	Wake        Instant
	Why         Reason
}
