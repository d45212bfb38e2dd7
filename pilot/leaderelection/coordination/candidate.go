package coordination

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
)

// Labels of a LeaseCandidate by which strategies tell candidates apart.
const (
	// RevisionLabel is the candidate's revision; without it, "default".
	RevisionLabel = "incumbent.dev/revision"
	// LocationLabel is LocationLocal or LocationRemote; without it, local.
	LocationLabel = "incumbent.dev/location"
	// FitLabel is "false" on a candidate that would rather not lead.
	FitLabel = "incumbent.dev/fit"
	// PriorityLabel is a whole number that an operator gives; the larger goes first, and none is 0.
	PriorityLabel = "incumbent.dev/priority"
)

// Values of LocationLabel.
const (
	LocationLocal  = "local"
	LocationRemote = "remote"
)

// Candidate is a process that could lead an election.
type Candidate struct {
	// Name is the holder identity that a choice writes.
	Name string
	// Created is when its object was made, by the API server's clock; it is compared with the others' alone.
	Created time.Time
	// EmulationVersion and BinaryVersion are semantic versions as published, unchecked: each strategy decides what to do about
	// one that cannot be read.
	EmulationVersion, BinaryVersion string
	// Strategy is the one that the candidate asks for.
	Strategy string
	Revision string
	Remote   bool
	Unfit    bool
	Priority int
	// Labels are all of its object's, for strategies of others.
	Labels map[string]string
}

var (
	errNoLease  = errors.New("it has no spec.leaseName")
	errLabel    = errors.New("the value is none that the label may have")
	errPriority = errors.New("the priority is no whole number")
)

// FromLeaseCandidate reads a candidate. The error names the object and each label that cannot be read; such labels count as
// absent, and the Candidate beside the error can be used. An object without spec.leaseName gives the zero Candidate.
func FromLeaseCandidate(object *coordinationv1beta1.LeaseCandidate) (Candidate, error) {
	c := Candidate{
		Name: object.Name, Created: object.CreationTimestamp.Time,
		EmulationVersion: object.Spec.EmulationVersion, BinaryVersion: object.Spec.BinaryVersion,
		Strategy: string(object.Spec.Strategy), Labels: object.Labels,
	}
	var errs []error
	if object.Spec.LeaseName == "" {
		c, errs = Candidate{}, append(errs, errNoLease)
	} else {
		errs = append(errs, c.readLabels())
	}
	if err := errors.Join(errs...); err != nil {
		return c, fmt.Errorf("LeaseCandidate %s/%s: %w", object.Namespace, object.Name, err)
	}
	return c, nil
}

func (c *Candidate) readLabels() error {
	var errs []error
	if c.Revision = c.Labels[RevisionLabel]; c.Revision == "" {
		c.Revision = "default"
	}
	switch where := c.Labels[LocationLabel]; where {
	case "", LocationLocal:
	case LocationRemote:
		c.Remote = true
	default:
		errs = append(errs, fmt.Errorf("label %s=%q: %w: %s or %s", LocationLabel, where, errLabel, LocationLocal, LocationRemote))
	}
	switch fit := c.Labels[FitLabel]; fit {
	case "", "true":
	case "false":
		c.Unfit = true
	default:
		errs = append(errs, fmt.Errorf("label %s=%q: %w: true or false", FitLabel, fit, errLabel))
	}
	if text, given := c.Labels[PriorityLabel]; given {
		n, err := strconv.Atoi(text)
		if err != nil {
			n = 0
			errs = append(errs, fmt.Errorf("label %s=%q: %w", PriorityLabel, text, errPriority))
		}
		c.Priority = n
	}
	return errors.Join(errs...)
}
