package core

// Reason is the reason word that log, metric and trace share.
type Reason string

const (
	// Reasons to wait.
	NeedRead    Reason = "need-read"
	InFlight    Reason = "call-in-flight"
	HeldByOther Reason = "held-by-other"
	BackingOff  Reason = "backing-off"
	Retrying    Reason = "waiting-to-retry"
	Polling     Reason = "poll"
	NotFit      Reason = "unfit"
	// BarredFromLock is also the end of a term.
	BarredFromLock Reason = "barred"
	Unsynced       Reason = "default-not-synced"
	NotNamed       Reason = "not-named"

	// Beginnings of a term.
	Created             Reason = "lock-absent"
	Filled              Reason = "record-missing"
	Free                Reason = "lock-free"
	Expired             Reason = "lease-expired"
	Preempted           Reason = "outranks"
	Reclaimed           Reason = "own-name"
	Replaced            Reason = "record-unreadable"
	Nominated           Reason = "nominated"
	Settled             Reason = "settled"
	NoCoordinator       Reason = "no-coordinator"
	EarlierHolderMayAct Reason = "earlier-holder-may-act"
	AnsweredLate        Reason = "answered-late" // also the end of a term
	Acquired            Reason = "acquired"

	// Handovers.
	RequestingHandover Reason = "request-handover"
	RequestPending     Reason = "request-pending"
	Accepting          Reason = "accept-request"
	Refusing           Reason = "refuse-request"
	HandingOver        Reason = "handing-over"
	Unrequested        Reason = "nomination-unrequested"

	// During a term.
	Renewing Reason = "renew"
	Holding  Reason = "holding"

	// Ends of a term.
	Superseded       Reason = "superseded"
	LockDeleted      Reason = "lock-deleted"
	RecordEmptied    Reason = "record-emptied"
	RecordUnreadable Reason = "record-unreadable"
	IdentityConflict Reason = "identity-conflict"
	HistoryRewound   Reason = "store-restored"
	ValidityEnded    Reason = "validity-ended"
	Stopped          Reason = "stopped"
	Yielding         Reason = "another-is-preferred"
	SteppedDown      Reason = "stepped-down"
	DrainedAll       Reason = "drained"
	ReleasingLock    Reason = "release"
	Released         Reason = "released"
	LeftToExpire     Reason = "left-to-expire"
	DrainStuck       Reason = "drain-stuck"
	HolderDied       Reason = "holder-died" // a witness releases the lock
)
