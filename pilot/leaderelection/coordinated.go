package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/leasecandidate"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
)

// Coordination leaves the choice of an election's leader to a coordinator (package coordination). The process publishes a LeaseCandidate as
// long as it takes part, and waits until it is named. Its identity in the lock is
// coordination.CandidateName of Identity and the lock: "<identity>.<lock>".
type Coordination struct {
	// Strategy is the one that this candidate asks for, such as coordination.DefaultRevision.
	Strategy string
	// BinaryVersion and EmulationVersion are semantic versions without a v in front; an empty EmulationVersion is the same.
	BinaryVersion, EmulationVersion string
	// PodUID is that of the Pod called Identity, to which the LeaseCandidate is to belong; "" where it runs in none.
	PodUID types.UID
	// Labels are further ones that a strategy of others looks at. Revision, location and fitness are there anyway.
	Labels map[string]string
}

var (
	errLeaseAlone       = errors.New("the Coordination needs Lock: LockTypeLease: a coordinator knows Leases alone")
	errNoPredecessor    = errors.New("the Coordination goes with no Predecessor: finish the migration first (docs/migration.md)")
	errCoordinatedTwice = errors.New("the Coordination goes without PreemptImmediately: nobody preempts where a coordinator chooses")
)

func (c Config) validateCoordination() error {
	if c.Coordination == nil {
		return nil
	}
	var errs []error
	if c.Lock != LockTypeLease {
		errs = append(errs, errLeaseAlone)
	}
	if c.Predecessor != nil {
		errs = append(errs, errNoPredecessor)
	}
	if c.PreemptImmediately {
		errs = append(errs, errCoordinatedTwice)
	}
	publish := c.publication(nil)
	if err := publish.ValidateCandidate(); err != nil {
		errs = append(errs, fmt.Errorf("the Coordination: %w", err))
	}
	return errors.Join(errs...)
}

// holder is this candidate's identity in the lock.
func (c Config) holder() string {
	if c.Coordination == nil {
		return c.Identity
	}
	return coordination.CandidateName(c.Identity, c.lockName())
}

// publication configures the Publisher of this process's LeaseCandidate.
func (c Config) publication(client kubernetes.Interface) leasecandidate.Config {
	labels := map[string]string{coordination.RevisionLabel: c.Revision, coordination.LocationLabel: coordination.LocationLocal}
	if c.Remote {
		labels[coordination.LocationLabel] = coordination.LocationRemote
	}
	maps.Copy(labels, c.Coordination.Labels)
	return leasecandidate.Config{
		Client: client, Namespace: c.Namespace, Lease: c.lockName(), Pod: c.Identity, PodUID: c.Coordination.PodUID,
		BinaryVersion: c.Coordination.BinaryVersion, EmulationVersion: c.Coordination.EmulationVersion, Strategy: c.Coordination.Strategy,
		Labels: labels, Logger: c.Logger,
	}
}

// publish has coordinators see this candidate, until ctx ends or end is called, which waits for that.
func (l *LeaderElection) publish(ctx context.Context, client kubernetes.Interface) (end func(), err error) {
	if l.cfg.Coordination == nil {
		return func() {}, nil
	}
	publisher, err := leasecandidate.New(l.cfg.publication(client))
	if err != nil {
		return nil, err
	}
	if l.fitness() != nil {
		publisher.SetFit(false) // until it was asked
	}
	l.publisher.Store(publisher)
	ctx, cancel := context.WithCancel(ctx)
	var publishing sync.WaitGroup
	publishing.Go(func() { _ = publisher.Run(ctx) }) // its troubles are logged
	return func() {
		cancel()
		publishing.Wait()
	}, nil
}

// SetCoordinatorAbsent tells a coordinated election whether its coordinator is known to be gone, as of now: after three
// lease durations of that the candidates' keys decide. It does not block and may be called at any time.
func (l *LeaderElection) SetCoordinatorAbsent(absent bool) {
	l.absent.Store(absent)
	if e := l.elector.Load(); e != nil {
		e.SetCoordinatorAbsent(absent)
	}
}
