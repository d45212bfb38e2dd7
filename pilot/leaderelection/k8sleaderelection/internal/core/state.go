package core

import (
	"time"

	"incumbent.dev/incumbent/internal/record"
)

// Package record decodes the lock object.

type (
	// Record is the record of the lock.
	Record = record.Record
	// Stamp is a time in the record.
	Stamp = record.Stamp
	// Content is the content of the lock object.
	Content = record.Content
	// Marker is the annotation of an acting leader.
	Marker = record.Marker
	// Nomination is the annotation of a nomination.
	Nomination = record.Nomination
	// Request is a handover request.
	Request = record.Request
	// Hold is a command to keep the holder.
	Hold = record.Hold
	// Annotations is the annotations on the lock object.
	Annotations = record.Annotations
	// Snapshot is the lock object in one reply or watch event.
	Snapshot = record.Snapshot
)

// Config has the constants of an elector. LeaderElectionConfig documents the fields that both have.
type Config struct {
	Self, Key string
	Timing
	Ranked    bool // keys are revisions; if false, no candidate outranks another
	External  bool // a KeyComparisonFunc compares instead: see Input.Beats
	Immediate bool // act immediately after preempting, as Istio's elector does
	Release   bool // release after a drained stop; if false, the lease expires
	OneCycle  bool // a lost term ends the elector
	// Coordinated: a coordinator names the leader. See coordination.go.
	Coordinated bool
	Resolution  Stamp // unit of the times in the lock; zero: a second
}

// Phase is the phase of a candidate.
type Phase uint8

const (
	// Following: this candidate is not the holder, or has not been since its last term ended.
	Following Phase = iota
	// Settling: this candidate holds and renews the lock, but an earlier holder may still act, or the API server answers so late that
	// the term would be lost. Run functions do not run and the gate is closed. While an earlier holder may act, settling never
	// releases, because a release would show that no process acts.
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

// Names of phases that packages outside the elector compare.
const (
	NameFollowing = "following"
	NameLeading   = "leading"
	NameDraining  = "draining"
)

var phaseNames = [...]string{NameFollowing, "settling", NameLeading, NameDraining, "releasing", "done"}

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

// State is the whole state of an elector. It is comparable. Its parts belong to topics. The file of a topic has
// what the topic learns from an input, and what it decides.
//
// Some fields are valid only in some phases. All other fields are valid in every phase.
//
//	Sight                after the first read: Known is not Unread
//	Earlier.SettleAt     Settling. It is set when the acquiring write is sent
//	Requesting.Wanted    Following, from the first request
//	Term, BeganAt        Settling to Releasing. Term is zero in Releasing if the lock was never acquired
//	Validity             Settling, Leading, Draining. It is zero after the term was lost
//	Marked               Settling to Releasing
//	Running              Leading, Draining. It is also set in Done if the run functions are stuck
//	GiveWay              Settling to Releasing
//	Drain.StepDown       Leading to Releasing
//	Drain, other fields  Draining, Releasing
//	Flight               every phase but Done, while Flight.Op is not NoOp
type State struct {
	Phase    Phase
	Why      Reason // reason of the last phase change
	Stopping bool   // the elector must end
	Unfit    bool   // this process should not lead if another candidate can
	Barred   bool   // this candidate observes the lock and does not campaign; a term ends with a release
	Default  DefaultRevision
	Beats    bool // of the last Input

	Sight
	Own Own
	Claim
	Handover
	Coordination
	Leadership
	Flight Call
	Effort Efforts
}

// Action is the complete desired state. Applying it twice is harmless.
type Action struct {
	Op          Op
	Base        Snapshot // snapshot that the write is decided on and guarded by
	Record      Record
	Annotations Annotations
	Unprefer    bool     // the write removes the preference of a coordinator
	Until       Instant  // of the call, or of the call in flight: its answer is of no use later
	Gate        Validity // writes may pass until then; zero: closed
	Run         bool     // run functions should be running
	Wake        Instant
	Why         Reason
}

func (a Action) withReason(why Reason) Action { a.Why = why; return a }

// wake sets the wake-up to at if that is earlier.
func (a Action) wake(at Instant) Action { a.Wake = min(a.Wake, at); return a }

func (a Action) write(op Op, base Snapshot, r Record, n Annotations) Action {
	a.Op = op
	a.Base = base
	a.Record = r
	a.Annotations = n
	return a
}
