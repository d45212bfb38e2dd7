package admin

import (
	"context"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// Cancel withdraws Transfer and StepDown: it removes the request of an operator, and ends the hold of a transfer. It needs no
// live leader. If the leader has accepted the request, it still drains, and then releases the lock. The error is ErrNoRequest
// if there is nothing to withdraw.
func (o Operator) Cancel(ctx context.Context) error {
	return o.annotate(ctx, "cancel", func(snap core.Snapshot, annotations map[string]string) error {
		requested := snap.Addressed() && snap.Annotations.Request.Reason == record.ForOperator
		held := snap.OnHold() && snap.Annotations.Hold.Reason == record.HoldForTransfer
		if requested {
			delete(annotations, record.HandoverRequestAnnotation)
		}
		if held {
			o.endHold(snap, annotations)
		}
		if !requested && !held {
			return ErrNoRequest
		}
		return nil
	})
}
