package members

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// Label and LabelValue mark member Leases. Selector selects them.
	Label      = "incumbent.dev/member"
	LabelValue = "true"
	Selector   = Label + "=" + LabelValue
	// StateAnnotation is the annotation with the State as JSON.
	StateAnnotation = "incumbent.dev/member-state"
	// maxName is the maximum length of an identity, the name of an election, and other words of a State. A revision is the value of a label.
	maxName     = validation.DNS1123SubdomainMaxLength
	maxRevision = 63
	// maxDuration is the longest lease duration of a member Lease. With a longer one, an ended process would look alive.
	maxDuration = 10 * Duration
	// NamePrefix is the prefix of the names of member Leases.
	NamePrefix = "incumbent-member-"
)

// Cluster is the location of a member relative to the cluster of its Lease.
type Cluster string

const (
	// Local is the value of members in the cluster of their elections.
	Local Cluster = "local"
	// Remote is the value of members in another cluster. Local candidates outrank them.
	Remote Cluster = "remote"
)

// State is the published state of a process.
type State struct {
	// Revision is the revision of its control plane, such as "stable".
	Revision string  `json:"revision"`
	Cluster  Cluster `json:"cluster"`
	// Version is the version of the program.
	Version string `json:"version,omitempty"`
	// Witness is parent or sidecar. It is empty if no witness releases the locks after the process has ended.
	Witness string `json:"witness,omitempty"`
	// Elections are its elections in the namespace of its Lease.
	Elections []Election `json:"elections"`
}

// Election is the state of a member in one election.
type Election struct {
	// Name is the name of the lock object.
	Name string `json:"name"`
	// Candidate is true if the process takes part now.
	Candidate bool `json:"candidate"`
	// Warm is true if its caches are prepared. Fit is true if its fitness check succeeds.
	Warm bool `json:"warm"`
	Fit  bool `json:"fit"`
	// BackingOff is true if the process does not campaign after a step-down.
	BackingOff bool `json:"backingOff,omitempty"`
	// Strategy is the requested strategy of the coordinator (package coordination). It is empty if the election is not coordinated.
	Strategy string `json:"strategy,omitempty"`
	// Uncoordinated is why no coordinator chooses the leader although the process requests a strategy.
	Uncoordinated string `json:"uncoordinated,omitempty"`
	// Refused is why the API server rejected the last write of the process as holder. It is empty after a successful write.
	Refused string `json:"refused,omitempty"`
}

// Member is a parsed member Lease.
type Member struct {
	// Namespace and Name are the namespace and name of the Lease.
	Namespace, Name string
	// Identity is the identity of the process in elections.
	Identity string
	State
	// Renewed is the time of the last write, by the API server's clock if the Lease has managedFields, and otherwise by the
	// process's clock. Duration is the lease duration.
	Renewed  time.Time
	Duration time.Duration
	// PodUID is the UID of the owning Pod. It is empty if the process runs outside a Pod.
	PodUID string
}

// LeaseName returns the name of the member Lease of an identity. An identity that is no valid object name is hashed.
func LeaseName(identity string) string {
	name := NamePrefix + identity
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		sum := sha256.Sum256([]byte(identity))
		name = NamePrefix + hex.EncodeToString(sum[:16])
	}
	return name
}

// Late reports whether duration and tolerance have passed since the last write. now and Renewed are from different clocks, so
// tolerance must exceed their difference. A member that is not late may have just died. A late member may be disconnected.
func (m Member) Late(now time.Time, tolerance time.Duration) bool {
	return now.After(m.Renewed.Add(m.Duration + tolerance))
}

// Key returns the key of the member: its revision, prefixed with ^ if it is remote.
func (m Member) Key() string {
	if m.Cluster == Remote {
		return "^" + m.Revision
	}
	return m.Revision
}

var errLong = errors.New("value is too long")

// Parse parses a member Lease. The error names the object.
func Parse(lease *coordinationv1.Lease) (Member, error) {
	m, err := parse(lease)
	if err != nil {
		return Member{}, fmt.Errorf("member Lease %s/%s: %w", lease.Namespace, lease.Name, err)
	}
	return m, nil
}

func parse(lease *coordinationv1.Lease) (Member, error) {
	m := Member{Namespace: lease.Namespace, Name: lease.Name}
	spec := lease.Spec
	switch {
	case lease.Labels[Label] != LabelValue:
		return m, errors.New("missing label " + Selector)
	case spec.HolderIdentity == nil || *spec.HolderIdentity == "":
		return m, errors.New("spec.holderIdentity is empty")
	case len(*spec.HolderIdentity) > maxName:
		return m, fmt.Errorf("spec.holderIdentity: %w", errLong)
	case LeaseName(*spec.HolderIdentity) != lease.Name:
		return m, fmt.Errorf("name does not match the holder: %q requires %s", *spec.HolderIdentity, LeaseName(*spec.HolderIdentity))
	case spec.RenewTime == nil || spec.LeaseDurationSeconds == nil || *spec.LeaseDurationSeconds <= 0:
		return m, errors.New("spec has no renewTime or no positive leaseDurationSeconds")
	case time.Duration(*spec.LeaseDurationSeconds)*time.Second > maxDuration:
		return m, errors.New("leaseDurationSeconds is too long")
	}
	m.Identity = *spec.HolderIdentity
	m.Renewed = renewedAt(lease)
	m.Duration = time.Duration(*spec.LeaseDurationSeconds) * time.Second
	for _, owner := range lease.OwnerReferences {
		if owner.Kind == "Pod" {
			m.PodUID = string(owner.UID)
		}
	}
	state, err := parseState(lease.Annotations[StateAnnotation])
	if err != nil {
		return m, fmt.Errorf("annotation %s: %w", StateAnnotation, err)
	}
	m.State = state
	return m, nil
}

// renewedAt returns when the publisher last wrote the Lease. The clock of its process may be wrong.
func renewedAt(lease *coordinationv1.Lease) time.Time {
	for _, entry := range lease.ManagedFields {
		if entry.Manager == manager && entry.Time != nil {
			return entry.Time.Time
		}
	}
	return lease.Spec.RenewTime.Time
}

func parseState(text string) (s State, err error) {
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return s, err
	}
	if s.Cluster != Local && s.Cluster != Remote {
		return s, fmt.Errorf("%q: cluster is neither local nor remote", s.Cluster)
	}
	if len(s.Revision) > maxRevision {
		return s, fmt.Errorf("revision: %w", errLong)
	}
	for _, e := range s.Elections {
		if e.Name == "" {
			return s, errors.New("election without name")
		}
		if len(e.Name) > maxName || len(e.Strategy) > maxName {
			return s, fmt.Errorf("election: %w", errLong)
		}
	}
	if len(s.Version) > maxName || len(s.Witness) > maxName {
		return s, fmt.Errorf("version or witness: %w", errLong)
	}
	return s, nil
}
