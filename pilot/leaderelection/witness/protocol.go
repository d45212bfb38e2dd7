package witness

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

const (
	// protocolVersion is the version of messages. A witness does not accept a newer one.
	protocolVersion = 1
	// maxMessage is the maximum size of a message. A socket of type SOCK_SEQPACKET keeps the boundaries of messages.
	maxMessage = 8 << 10
	// maxTerms is the maximum number of terms of a process.
	maxTerms = 10_000
	// maxGrace is the maximum time between the end of a process and the release.
	maxGrace = time.Minute
	// deathGrace is the default time between the end of a process and the release of its locks. Requests that the process
	// sent before its end reach the API server within it. A write that is later than the release is rejected by a fence only.
	deathGrace = time.Second
)

// message is sent by a candidate. It has Register or Remove.
type message struct {
	Version  int           `json:"version"`
	Register *registration `json:"register,omitempty"`
	Remove   *lockKey      `json:"remove,omitempty"`
}

// registration is a term that the witness releases after the end of the process.
type registration struct {
	// Cluster is the API server of the lock: empty for the cluster of the process.
	Cluster string        `json:"cluster,omitempty"`
	Grace   time.Duration `json:"grace"`
	// died is set by the witness.
	died time.Time
	k8sleaderelection.WitnessedTerm
}

func (r registration) key() lockKey {
	return lockKey{Cluster: r.Cluster, LockType: r.LockType, Namespace: r.Namespace, Name: r.Name}
}

// lockKey identifies a lock.
type lockKey struct {
	Cluster   string `json:"cluster,omitempty"`
	LockType  string `json:"lockType"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// reply is sent by a witness that rejects the messages of a connection. It then keeps no term of that connection.
type reply struct {
	Version int    `json:"version"`
	Error   string `json:"error"`
}

// terms are the registered terms of one process.
type terms map[lockKey]registration

// apply processes one message. accepts returns an error for a term that the witness does not accept.
func (t terms) apply(raw []byte, accepts func(registration) error) error {
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(raw, &version); err != nil {
		return fmt.Errorf("message is not valid JSON: %w", err)
	}
	if version.Version < 1 || version.Version > protocolVersion {
		return fmt.Errorf("protocol version %d is not supported, this witness supports %d. Update the witness; until then leases expire as without a witness",
			version.Version, protocolVersion)
	}
	var m message
	if err := json.Unmarshal(raw, &m); err != nil {
		return fmt.Errorf("message is not valid: %w", err)
	}
	switch {
	case m.Remove != nil:
		delete(t, *m.Remove)
	case m.Register == nil:
		return errors.New("message has neither a term to register nor a lock to remove")
	case m.Register.Holder == "" || m.Register.Name == "" || m.Register.LockType == "":
		return errors.New("registration has no holder or no lock")
	case len(t) >= maxTerms:
		return fmt.Errorf("more than %d terms are registered", maxTerms)
	default:
		if err := accepts(*m.Register); err != nil {
			return err
		}
		m.Register.Grace = min(max(m.Register.Grace, 0), maxGrace)
		m.Register.Lease = record.LongerLease(0, m.Register.Lease)
		t[m.Register.key()] = *m.Register
	}
	return nil
}
