package main

import (
	"encoding/json"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"incumbent.dev/incumbent/internal/inspect"
	locks "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// recordState is what a lock's record comes to: renewals do not change it, nor do requests.
type recordState struct {
	// gone: there is no object; unreadable: there is, and its record is none.
	gone, unreadable bool
	// holder is "" while the lock is free.
	holder, key string
	transitions int
	lease       int
	// nominated: the holder was written in and has not written itself yet.
	nominated bool
	// named: a coordinator wrote it in, which leaves the count of terms to it.
	named bool
	// renewed is the holder's last renewal, by its clock, in microseconds. A state is the same for all of them.
	renewed int64
}

// stateOfLease reads a Lease.
func stateOfLease(obj *coordinationv1.Lease) recordState {
	lock, ok := inspect.FromLease(obj)
	if !ok {
		return recordState{} // nobody has held it yet
	}
	e := inspect.Of(lock)
	state := recordState{holder: e.Holder, key: e.Key, transitions: e.Transitions, lease: e.LeaseSeconds, renewed: e.Renewed.UnixMicro()}
	if e.State == inspect.Nominated {
		handedOver := obj.Annotations[locks.NominatedAnnotation] != ""
		state.nominated, state.named = handedOver, !handedOver
	}
	return state
}

// step is a state of the record, when the watch first showed it, and when it last showed a renewal.
type step struct {
	recordState
	first, last time.Time
}

// chronicle is the history of one lock by a watch on it, which shows every version.
type chronicle struct {
	mu    sync.Mutex
	steps []step
}

// take adds what the watch shows.
func (c *chronicle) take(state recordState, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.steps); n > 0 {
		last := &c.steps[n-1]
		renewed := last.renewed
		if last.renewed = state.renewed; last.recordState == state {
			if renewed != state.renewed { // else a request or a preference was written beside it
				last.last = at
			}
			return
		}
		last.renewed = renewed
	}
	c.steps = append(c.steps, step{recordState: state, first: at, last: at})
}

// since is the step that stood at an instant, and those after it.
func (c *chronicle) since(at time.Time) []step {
	c.mu.Lock()
	defer c.mu.Unlock()
	from := 0
	for i, s := range c.steps {
		if s.first.Before(at) {
			from = i
		}
	}
	return append([]step{}, c.steps[from:]...)
}

// stateOf reads the record of a ConfigMap.
func stateOf(obj *corev1.ConfigMap) recordState {
	var record locks.LeaderElectionRecord
	if err := json.Unmarshal([]byte(obj.Annotations[locks.LeaderElectionRecordAnnotationKey]), &record); err != nil {
		return recordState{unreadable: true}
	}
	nominee := obj.Annotations[locks.NominatedAnnotation]
	return recordState{
		holder: record.HolderIdentity, key: record.HolderKey, transitions: record.LeaderTransitions,
		lease:     record.LeaseDurationSeconds,
		renewed:   record.RenewTime.UnixMicro(),
		nominated: nominee != "" && nominee == record.HolderIdentity && record.AcquireTime.Equal(&record.RenewTime),
	}
}
