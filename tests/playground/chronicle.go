package main

import (
	"encoding/json"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

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
}

// step is a state of the record, and when the watch first and last showed it.
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
	if n := len(c.steps); n > 0 && c.steps[n-1].recordState == state {
		c.steps[n-1].last = at
		return
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
		nominated: nominee != "" && nominee == record.HolderIdentity && record.AcquireTime.Equal(&record.RenewTime),
	}
}
