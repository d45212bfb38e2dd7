package k8sresourcelock

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// maxPending bounds what a subscriber may have in store. One that is further behind
// has not been looking for minutes.
const maxPending = 256

var errBehind = fmt.Errorf("more than %d changes were not taken in", maxPending)

// subscriber is one lock's part in a shared watch. hub.mu guards pending and behind.
type subscriber struct {
	of   *sharedWatch
	name string
	// late: what happened after the version that it wanted to resume from is not known
	// any more. It has to start with the present state.
	late    bool
	wake    chan struct{}
	pending []Snapshot
	behind  bool
}

// add puts a change in store. The caller holds hub.mu.
func (s *subscriber) add(snap Snapshot) {
	if len(s.pending) >= maxPending {
		s.behind = true
		return
	}
	s.pending = append(s.pending, snap)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *subscriber) take() ([]Snapshot, error) {
	s.of.hub.mu.Lock()
	defer s.of.hub.mu.Unlock()
	all := s.pending
	s.pending = nil
	if s.behind {
		return nil, errBehind
	}
	return all, nil
}

// follow is Watch by way of the shared one.
func (s *subscriber) follow(ctx context.Context, a access[*coordinationv1.Lease], from string, up func(), seen func(Snapshot)) (string, error) {
	if s.late {
		return "", nil
	}
	select {
	case <-s.of.accepted:
	case <-s.of.done:
		return s.of.resume, s.of.err
	case <-ctx.Done():
		return from, nil
	}
	last := from
	if from == "" {
		// Asked after the watch was accepted: it shows all that is later.
		present, err := a.read(ctx)
		if err != nil || !s.of.checkPresent(s.name, present.ResourceVersion) {
			return "", err
		}
		up()
		if present.Exists && ctx.Err() == nil {
			seen(present)
			last = present.ResourceVersion
		}
	} else {
		up()
	}
	for {
		over := isClosed(s.of.done) // asked first: what is in store then is all
		changes, err := s.take()
		if err != nil {
			return "", err
		}
		if last = show(ctx, changes, last, seen); ctx.Err() != nil {
			return last, nil
		}
		if over {
			return s.of.resume, s.of.err
		}
		select {
		case <-s.wake:
		case <-s.of.done:
		case <-ctx.Done():
			return last, nil
		}
	}
}

// show shows the changes that came after version last, and returns the last one shown.
func show(ctx context.Context, changes []Snapshot, last string, seen func(Snapshot)) string {
	for _, snap := range changes {
		if ctx.Err() != nil {
			return last
		}
		if later(snap.ResourceVersion, last) {
			seen(snap)
			last = snap.ResourceVersion
		}
	}
	return last
}
