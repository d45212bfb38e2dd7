package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

var (
	errCoordinationLock        = errors.New("Coordination requires Lock LockTypeLease: a coordinator uses only Leases")                      //nolint:staticcheck // field name
	errCoordinationPredecessor = errors.New("Coordination excludes Predecessor: finish the migration first (docs/migration.md)")             //nolint:staticcheck // field name
	errCoordinationPreempt     = errors.New("Coordination excludes PreemptImmediately: candidates of a coordinated election do not preempt") //nolint:staticcheck // field name
)

func (c Config) validateCoordination() error {
	if c.Coordination == nil {
		return nil
	}
	var errs []error
	if c.Lock != LockTypeLease {
		errs = append(errs, errCoordinationLock)
	}
	if c.Predecessor != nil {
		errs = append(errs, errCoordinationPredecessor)
	}
	if c.PreemptImmediately {
		errs = append(errs, errCoordinationPreempt)
	}
	if err := c.candidate().Validate(c.Namespace, c.lockName(), c.Identity); err != nil {
		errs = append(errs, fmt.Errorf("Coordination: %w", err))
	}
	return errors.Join(errs...)
}

// holder returns the identity of this candidate in the lock.
func (c Config) holder() string {
	if c.Coordination == nil {
		return c.Identity
	}
	return coordination.CandidateName(c.Identity, c.lockName())
}

// candidate returns the published candidate, with the labels that are always set.
func (c Config) candidate() coordination.CandidateConfig {
	candidate := *c.Coordination
	location := coordination.LocationLocal
	if c.Remote {
		location = coordination.LocationRemote
	}
	candidate.Labels = map[string]string{coordination.RevisionLabel: c.Revision, coordination.LocationLabel: location}
	maps.Copy(candidate.Labels, c.Coordination.Labels)
	return candidate
}

// publish publishes the LeaseCandidate until ctx ends or end is called. end waits until publishing has ended.
func (l *LeaderElection) publish(ctx context.Context, client kubernetes.Interface) (end func(), err error) {
	if l.cfg.Coordination == nil {
		return func() {}, nil
	}
	publisher, err := coordination.NewPublisher(coordination.PublisherConfig{
		CandidateConfig: l.cfg.candidate(), Client: client, Namespace: l.cfg.Namespace, Lease: l.cfg.lockName(), Pod: l.cfg.Identity,
		SetUnserved: l.setUnserved, Logger: l.log,
	})
	if err != nil {
		return nil, err
	}
	l.setUnserved(false)
	e := l.elector.Load()
	changed := e.Changed()
	publisher.SetFit(l.fitness() == nil) // until the first fitness check
	ctx, cancel := context.WithCancel(ctx)
	var publishing sync.WaitGroup
	publishing.Go(func() { _ = publisher.Run(ctx) }) // it logs its errors
	publishing.Go(func() { publishFitness(ctx, publisher, e, changed) })
	return func() {
		cancel()
		publishing.Wait()
	}, nil
}

// publishFitness publishes after each change whether this candidate should be named, until ctx ends. While a candidate does not campaign
// after a step-down, it counts as unfit. Otherwise the coordinator would name it again, and it would release the lock each time.
func publishFitness(ctx context.Context, p *coordination.Publisher, e *k8sleaderelection.LeaderElector, changed <-chan struct{}) {
	for {
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
		changed = e.Changed() // before the status, so that no change is missed
		now := e.Status()
		p.SetFit(!now.Unfit && !now.BackingOff)
	}
}

// SetCoordinatorAbsent sets whether the coordinator of a coordinated election is absent. While it is absent, this candidate
// ignores it and acquires the lock by rank. The method does not block.
func (l *LeaderElection) SetCoordinatorAbsent(absent bool) {
	l.setUncoordinated(func() { l.absent = absent })
}

// setUnserved records whether the API server does not serve LeaseCandidates. Without them, no coordinator can read the candidates.
func (l *LeaderElection) setUnserved(unserved bool) {
	l.setUncoordinated(func() { l.unserved = unserved })
}

func (l *LeaderElection) setUncoordinated(set func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	set()
	if e := l.elector.Load(); e != nil {
		e.SetCoordinatorAbsent(l.absent || l.unserved)
	}
}

// Values of Status.Uncoordinated.
const (
	// NoCoordinator means that no coordinator acted.
	NoCoordinator = "no coordinator named a leader for three lease durations"
	// Unserved means that no coordinator can read the candidates.
	Unserved = "the API server does not serve LeaseCandidates"
)

// uncoordinated returns why no coordinator chooses the leader of a coordinated election. It is empty if one does.
func (l *LeaderElection) uncoordinated(now k8sleaderelection.Status) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.cfg.Coordination == nil:
	case l.unserved:
		return Unserved
	case l.absent:
		return "the coordinator is absent"
	case now.NoCoordinator:
		return NoCoordinator
	}
	return ""
}
