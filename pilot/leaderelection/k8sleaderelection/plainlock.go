package k8sleaderelection

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// complete returns a lock of the caller with all methods of a Lock. A Lock guards its writes, so its requests may be sent twice.
func complete(lock k8sresourcelock.Interface) k8sresourcelock.Lock {
	if l, ok := lock.(k8sresourcelock.Lock); ok {
		return k8sresourcelock.SendTwice(l)
	}
	return &plainLock{Interface: lock}
}

// plainLock is a lock that implements only Interface. Its versions count the changes that this process saw. It cannot store
// markers, so a restarted process settles for a lease before it leads. It does not support concurrent calls.
type plainLock struct {
	k8sresourcelock.Interface
	last k8sresourcelock.Snapshot
	seen uint64
}

// Key returns the rank of the candidate, if the lock is Keyed.
func (p *plainLock) Key() string {
	if keyed, ok := p.Interface.(k8sresourcelock.Keyed); ok {
		return keyed.Key()
	}
	return ""
}

// Validate cannot check the lock of a caller.
func (p *plainLock) Validate() error { return nil }

// Subscribe cannot watch the lock of a caller.
func (p *plainLock) Subscribe(context.Context, func()) k8sresourcelock.Subscription { return nil }

// RecordWarning records an Event of type Normal.
func (p *plainLock) RecordWarning(s string) { p.RecordEvent(s) }

// DryRun cannot check a write.
func (p *plainLock) DryRun(context.Context, k8sresourcelock.Snapshot, k8sresourcelock.LeaderElectionRecord, map[string]string) error {
	return nil
}

// Annotate writes the record again, without the annotations.
func (p *plainLock) Annotate(ctx context.Context, base k8sresourcelock.Snapshot, annotations map[string]string) (k8sresourcelock.Snapshot, error) {
	return p.Write(ctx, base, base.Record, annotations)
}

func (p *plainLock) Read(ctx context.Context) (k8sresourcelock.Snapshot, error) {
	record, raw, err := p.Get(ctx)
	switch {
	case apierrors.IsNotFound(err):
		p.last = k8sresourcelock.Snapshot{}
		return p.last, nil
	case err != nil:
		return k8sresourcelock.Snapshot{}, err
	case record == nil:
		return k8sresourcelock.Snapshot{}, fmt.Errorf("lock %s: Get returned neither a record nor an error", p.Describe())
	}
	if !p.last.Exists || !bytes.Equal(raw, p.last.Raw) {
		p.note(*record, raw)
	}
	return p.last, nil
}

func (p *plainLock) Write(ctx context.Context, base k8sresourcelock.Snapshot, r k8sresourcelock.LeaderElectionRecord, _ map[string]string) (k8sresourcelock.Snapshot, error) {
	var err error
	if base.Exists {
		err = p.Update(ctx, r)
	} else {
		err = p.Create(ctx, r)
	}
	if apirequest.Outdated(err) {
		return k8sresourcelock.Snapshot{}, fmt.Errorf("%w: %w", k8sresourcelock.ErrConflict, err)
	}
	if err != nil {
		return k8sresourcelock.Snapshot{}, err
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return k8sresourcelock.Snapshot{}, fmt.Errorf("lock %s: %w", p.Describe(), err)
	}
	p.note(r, raw)
	return p.last, nil
}

// note stores a changed record. Raw is never nil, because a record exists.
func (p *plainLock) note(r k8sresourcelock.LeaderElectionRecord, raw []byte) {
	p.seen++
	p.last = k8sresourcelock.Snapshot{
		Exists: true, UID: "plain", ResourceVersion: strconv.FormatUint(p.seen, 10),
		Record: r, Raw: append([]byte{}, raw...),
	}
}
