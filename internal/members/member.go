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
	// Label is on each member's Lease, with LabelValue; Selector finds them.
	Label      = "incumbent.dev/member"
	LabelValue = "true"
	Selector   = Label + "=" + LabelValue
	// StateAnnotation holds what a member says, as JSON.
	StateAnnotation = "incumbent.dev/member-state"
	// NamePrefix begins the name of each member's Lease.
	NamePrefix = "incumbent-member-"
)

// Cluster is where a member runs, as seen from the Lease's cluster.
type Cluster string

const (
	// Local members run in the cluster whose elections they take part in.
	Local Cluster = "local"
	// Remote ones run in another cluster, and let candidates of this one go first.
	Remote Cluster = "remote"
)

// State describes a member, by its own account.
type State struct {
	// Revision is that of the control plane it belongs to, such as "stable".
	Revision string  `json:"revision"`
	Cluster  Cluster `json:"cluster"`
	// Version is the program's.
	Version string `json:"version,omitempty"`
	// EmulationVersion is the one that it behaves like in coordinated elections; empty means Version.
	EmulationVersion string `json:"emulationVersion,omitempty"`
	// Elections are those that it takes part in, in the namespace of its Lease.
	Elections []Election `json:"elections"`
}

// Election is a member's part in one.
type Election struct {
	// Name is the lock object's.
	Name string `json:"name"`
	// Candidate: it takes part in it now.
	Candidate bool `json:"candidate"`
	// Warm: the caches that its work needs are filled. Fit: it has no reason to rather not lead.
	Warm bool `json:"warm"`
	Fit  bool `json:"fit"`
	// Strategy is the one by which a coordinator is to choose the leader (package coordination); empty: none is to.
	Strategy string `json:"strategy,omitempty"`
}

// Member is a process that takes part in elections, as its Lease says.
type Member struct {
	// Namespace and Name are the Lease's.
	Namespace, Name string
	// Identity is the process's name in elections.
	Identity string
	State
	// Renewed is when it last wrote, by its own clock, and Duration is for how long
	// that was to count.
	Renewed  time.Time
	Duration time.Duration
	// PodUID is that of the Pod that it belongs to; "" where the process knew none.
	PodUID string
}

// LeaseName returns the name of an identity's Lease. An identity that makes no valid
// object name is hashed.
func LeaseName(identity string) string {
	name := NamePrefix + identity
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		sum := sha256.Sum256([]byte(identity))
		name = NamePrefix + hex.EncodeToString(sum[:16])
	}
	return name
}

// Late reports whether the member should have written again by now, which is the reader's
// clock: since its last write, its duration and tolerance have passed. Renewed is of another clock, so
// give a tolerance of more than the two may differ by. Members that are not late may have died a moment
// ago; those that are late may be cut off, or have a slow clock. Two looks need no clock of
// theirs: a member whose Renewed has changed in between was alive in between.
func (m Member) Late(now time.Time, tolerance time.Duration) bool {
	return now.After(m.Renewed.Add(m.Duration + tolerance))
}

// Part is the member's part in the election of a lock; false if it takes none now.
func (m Member) Part(election string) (Election, bool) {
	for _, e := range m.Elections {
		if e.Name == election {
			return e, e.Candidate
		}
	}
	return Election{}, false
}

// Key is the member's rank as it is written into locks: its revision, with ^ in front when it is remote.
func (m Member) Key() string {
	if m.Cluster == Remote {
		return "^" + m.Revision
	}
	return m.Revision
}

var (
	errNoMember = errors.New("it lacks the label " + Selector)
	errNoHolder = errors.New("its spec.holderIdentity is empty")
	errName     = errors.New("it is not called as its holder's would be")
	errTimes    = errors.New("its spec has no renewTime, or no positive leaseDurationSeconds")
	errCluster  = errors.New("cluster is neither local nor remote")
	errElection = errors.New("an election has no name")
)

// Parse reads a member's Lease. The error names the object and says what is wrong with it.
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
		return m, errNoMember
	case spec.HolderIdentity == nil || *spec.HolderIdentity == "":
		return m, errNoHolder
	case LeaseName(*spec.HolderIdentity) != lease.Name:
		return m, fmt.Errorf("%w: %q would be %s", errName, *spec.HolderIdentity, LeaseName(*spec.HolderIdentity))
	case spec.RenewTime == nil || spec.LeaseDurationSeconds == nil || *spec.LeaseDurationSeconds <= 0:
		return m, errTimes
	}
	m.Identity, m.Renewed = *spec.HolderIdentity, spec.RenewTime.Time
	m.Duration = time.Duration(*spec.LeaseDurationSeconds) * time.Second
	for _, owner := range lease.OwnerReferences {
		if owner.Kind == "Pod" {
			m.PodUID = string(owner.UID)
		}
	}
	state, err := parseState(lease.Annotations[StateAnnotation])
	if err != nil {
		return m, fmt.Errorf("its annotation %s: %w", StateAnnotation, err)
	}
	m.State = state
	return m, nil
}

func parseState(text string) (s State, err error) {
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return s, err
	}
	if s.Cluster != Local && s.Cluster != Remote {
		return s, fmt.Errorf("%q: %w", s.Cluster, errCluster)
	}
	for _, e := range s.Elections {
		if e.Name == "" {
			return s, errElection
		}
	}
	return s, nil
}
