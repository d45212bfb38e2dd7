package admin

import (
	"context"
	"errors"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Cancel withdraws Transfer and StepDown: it removes the request of an operator, and ends the hold of a transfer. It needs no
// live leader. If the leader has accepted the request, it still drains, and then releases the lock. The error is ErrNoRequest
// if there is nothing to withdraw.
func (o Operator) Cancel(ctx context.Context) error {
	objects := []k8sresourcelock.Interface{o.Lock}
	if l, ok := o.Lock.(*k8sresourcelock.MultiLock); ok {
		// A request in one of two objects is in effect.
		objects = []k8sresourcelock.Interface{l.Primary, l.Secondary}
	}
	removed := true
	withdrawn := false
	for try := 0; removed && try < maxTries; try++ { // a live leader can copy a request between the writes
		removed = false
		for _, object := range objects {
			err := Operator{Lock: object, Requester: o.Requester}.removeRequest(ctx)
			if err == nil {
				removed = true
				withdrawn = true
			} else if !errors.Is(err, ErrNoRequest) {
				return err
			}
		}
	}
	err := o.annotate(ctx, "cancel", func(snap core.Snapshot, annotations map[string]string) error {
		if !snap.OnHold() || snap.Annotations.Hold.Reason != core.HoldForTransfer {
			return ErrNoRequest
		}
		o.endHold(snap, annotations)
		return nil
	})
	if withdrawn && errors.Is(err, ErrNoRequest) {
		return nil
	}
	return err
}

// removeRequest removes the request of an operator from one object. The error is ErrNoRequest if there is none.
func (o Operator) removeRequest(ctx context.Context) error {
	err := o.annotate(ctx, "cancel", func(snap core.Snapshot, annotations map[string]string) error {
		if r := snap.Annotations.Request; !snap.Addressed() || r.Reason != core.ForOperator {
			return ErrNoRequest
		}
		delete(annotations, k8sresourcelock.HandoverRequestAnnotation)
		return nil
	})
	if errors.Is(err, errNoLock) { // the other object of a MultiLock may exist
		return ErrNoRequest
	}
	return err
}
