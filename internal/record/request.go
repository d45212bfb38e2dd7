package record

import "time"

// Request is the request of a challenger that the leader drains and hands over. The zero value is no request.
// It counts only if it is addressed to the present term.
type Request struct {
	// Identity is the candidate to hand over to. Without Identity, an operator requests that the leader steps down. Key is the key
	// of the candidate.
	Identity string `json:"identity"`
	Key      string `json:"key"`
	// Reason is default-revision, local-over-remote, unfit or operator.
	Reason string `json:"reason"`
	// Requester wrote the request. Note is a text of the operator.
	Requester string `json:"requester"`
	Note      string `json:"note,omitempty"`
	// Holder and Transitions identify the term that the request is addressed to.
	Holder      string `json:"holder"`
	Transitions int    `json:"transitions"`
	// Seconds is the time for acceptance. Each reader counts it from when it first saw the request.
	Seconds  int  `json:"seconds"`
	Accepted bool `json:"accepted"`
	// Refused is the reason of the leader, or empty.
	Refused string `json:"refused,omitempty"`
	// HoldSeconds is set by an operator: how long the new holder stays regardless of rank or, without
	// Identity, how long the old leader does not campaign.
	HoldSeconds int `json:"holdSeconds,omitempty"`
}

// Reasons of a request. A request by an operator needs no rank. Without Identity, the leader steps down.
const (
	ForDefaultRevision = "default-revision"
	ForLocalOverRemote = "local-over-remote"
	ForUnfit           = "unfit"
	ForOperator        = "operator"
)

// AddressedTo reports whether the record belongs to the addressed term.
func (r Request) AddressedTo(record Record) bool { return record.IsTerm(r.Holder, r.Transitions) }

// Bounded returns the request with the HoldSeconds that candidates apply.
func (r Request) Bounded() Request {
	r.HoldSeconds = min(r.HoldSeconds, int(MaxHold/time.Second))
	return r
}

// Renewed reports whether a challenger wrote r after old. The answer of the leader does not count.
func (r Request) Renewed(old Request) bool {
	again := old.Refused != "" && r.Refused == "" && !r.Accepted
	r.Accepted = false
	r.Refused = ""
	old.Accepted = false
	old.Refused = ""
	return again || r != old
}

// Hold is a command of an operator: the recorded holder stays regardless of rank. It is a pause, or the result
// of a transfer. The zero value is no hold. It counts only for the present term.
type Hold struct {
	// Holder and Transitions identify the term that is held.
	Holder      string `json:"holder"`
	Transitions int    `json:"transitions"`
	// Seconds is the duration. Each reader counts it from when it first saw the hold.
	Seconds int `json:"seconds"`
	// Requester is the operator. Note is a text of the operator.
	Requester string `json:"requester"`
	// Reason is pause or transfer.
	Reason string `json:"reason"`
	Note   string `json:"note,omitempty"`
}

// Reasons of a hold.
const (
	HoldForPause    = "pause"
	HoldForTransfer = "transfer"
)

// Bounded returns the hold with the duration that candidates apply.
func (h Hold) Bounded() Hold {
	h.Seconds = int(HoldTime(h.Seconds) / time.Second)
	return h
}

// Matches reports whether the hold is for the term of the record.
func (h Hold) Matches(r Record) bool { return r.IsTerm(h.Holder, h.Transitions) }
