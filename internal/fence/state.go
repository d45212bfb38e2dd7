package fence

import "time"

// Answer is the API server's answer to a dry-run write.
type Answer string

const (
	// Unclear means that the write failed for another reason.
	Unclear Answer = "unclear"
	// Admitted means that the fence admitted the write.
	Admitted Answer = "admitted"
	// Refused means that the fence rejected the write.
	Refused Answer = "refused"
)

// State is the result of the last self-test of an election.
type State struct {
	// InEffect is true if the API server treated the writes as it should.
	InEffect bool `json:"inEffect"`
	// Leading is true if the process led during the test.
	Leading bool `json:"leading"`
	// Answer is the API server's treatment of the write. It is empty before the first test.
	Answer Answer `json:"answer"`
	// Detail is the message of the API server.
	Detail string    `json:"detail,omitempty"`
	At     time.Time `json:"at,omitzero"`
	// Guards are the results per guard.
	Guards []GuardState `json:"guards,omitempty"`
}

// GuardState is the result for one guard.
type GuardState struct {
	Guard    string `json:"guard"`
	InEffect bool   `json:"inEffect"`
	Answer   Answer `json:"answer"`
}
