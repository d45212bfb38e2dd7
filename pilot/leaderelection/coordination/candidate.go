package coordination

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
)

const (
	// OldestEmulationVersion and DefaultRevision are the names of the shipped strategies.
	OldestEmulationVersion = string(coordinationv1.OldestEmulationVersion)
	DefaultRevision        = "incumbent.dev/DefaultRevision"

	// RevisionLabel is the label of a LeaseCandidate with its revision. The default is "default".
	RevisionLabel = "incumbent.dev/revision"
	// LocationLabel is the label with LocationLocal (the default) or LocationRemote.
	LocationLabel  = "incumbent.dev/location"
	LocationLocal  = "local"
	LocationRemote = "remote"
	// FitLabel is the label that is "false" while a candidate is unfit.
	FitLabel = "incumbent.dev/fit"
	// PriorityLabel is the label with an integer that an operator sets. The highest priority is preferred. The default is 0.
	PriorityLabel = "incumbent.dev/priority"
)

// CandidateName returns the name of a pod's candidate in an election. It is the name of the LeaseCandidate and the holder
// identity in the lock. A LeaseCandidate belongs to one election, so a pod needs one name per election.
func CandidateName(pod, lease string) string { return pod + "." + lease }

// Candidate is a process that can lead an election.
type Candidate struct {
	// Name is the holder identity.
	Name string
	// Created is the creation time of its object, by the clock of the API server.
	Created time.Time
	// EmulationVersion and BinaryVersion are the published versions. They may be invalid.
	EmulationVersion, BinaryVersion string
	// Strategy is the name of the strategy that the candidate requests.
	Strategy string
	// Revision, Remote, Unfit and Priority are the values of its labels.
	Revision string
	Remote   bool
	Unfit    bool
	Priority int
	// Labels are all labels of its object, for custom strategies.
	Labels map[string]string
}

var (
	errNoLease  = errors.New("spec.leaseName is empty")
	errLabel    = errors.New("invalid value")
	errPriority = errors.New("not an integer")
)

// parseCandidate reads a candidate. The error names the object and each invalid label. The Candidate is valid in spite of the
// error and has the default for such a label. An object without spec.leaseName gives the zero Candidate.
func parseCandidate(object *coordinationv1beta1.LeaseCandidate) (Candidate, error) {
	c := Candidate{
		Name: object.Name, Created: object.CreationTimestamp.Time,
		EmulationVersion: object.Spec.EmulationVersion, BinaryVersion: object.Spec.BinaryVersion,
		Strategy: string(object.Spec.Strategy), Labels: object.Labels,
	}
	err := c.parseLabels()
	if object.Spec.LeaseName == "" {
		c = Candidate{}
		err = errNoLease
	}
	if err != nil {
		return c, fmt.Errorf("parse LeaseCandidate %s/%s: %w", object.Namespace, object.Name, err)
	}
	return c, nil
}

func (c *Candidate) parseLabels() error {
	var errs []error
	c.Revision = c.Labels[RevisionLabel]
	if c.Revision == "" {
		c.Revision = "default"
	}
	switch location := c.Labels[LocationLabel]; location {
	case "", LocationLocal:
	case LocationRemote:
		c.Remote = true
	default:
		errs = append(errs, fmt.Errorf("label %s=%q: %w: use %s or %s", LocationLabel, location, errLabel, LocationLocal, LocationRemote))
	}
	switch fit := c.Labels[FitLabel]; fit {
	case "", "true":
	case "false":
		c.Unfit = true
	default:
		errs = append(errs, fmt.Errorf("label %s=%q: %w: use true or false", FitLabel, fit, errLabel))
	}
	if text, set := c.Labels[PriorityLabel]; set {
		n, err := strconv.Atoi(text)
		if err != nil {
			n = 0
			errs = append(errs, fmt.Errorf("label %s=%q: %w", PriorityLabel, text, errPriority))
		}
		c.Priority = n
	}
	return errors.Join(errs...)
}
