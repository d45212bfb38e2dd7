package k8sleaderelection

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// versioned returns lock with versions. For a lock that implements only Interface, the versions count the changes that
// this process saw.
func versioned(lock k8sresourcelock.Interface) k8sresourcelock.Versioned {
	if v, ok := lock.(k8sresourcelock.Versioned); ok {
		return v
	}
	return &plainLock{Interface: lock}
}

// plainLock adds versions to a lock that implements only Interface. It cannot store markers, so a restarted process
// settles for a lease before it leads. It does not support concurrent calls.
type plainLock struct {
	k8sresourcelock.Interface
	last k8sresourcelock.Snapshot
	seen uint64
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
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
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
