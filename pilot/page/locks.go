package page

import (
	"context"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pkg/kube"
)

// LockReader reads the locks of elections without an acting leader, and each lock after a new term until its holder renews it. An
// elector cannot know that a lease expired before its start, and it cannot distinguish a free lock from a lock that it cannot read.
// Times are by the clock of the API server.
type LockReader struct {
	client kube.Client
	clock  *apirequest.ServerClock

	mu   sync.Mutex
	read map[name]lastRead
}

// lastRead is the result of the last read of a lock.
type lastRead struct {
	inspect.Election
	renewed bool // the holder renewed its lease between two reads
}

const (
	// ReadInterval is the time between two calls of Read.
	ReadInterval = idle
	// readTimeout bounds the requests of one Read.
	readTimeout = 5 * time.Second
)

// unreachable is the state of a lock that cannot be read.
const unreachable inspect.State = "unknown: the lock cannot be read"

// NewLockReader returns a LockReader for the cluster of the client.
func NewLockReader(client kube.Client) (*LockReader, error) {
	r := &LockReader{clock: &apirequest.ServerClock{}, read: map[name]lastRead{}}
	var err error
	r.client, err = kube.Derive(client, kube.WithWrapTransport(r.clock.Wrap))
	return r, err
}

// Read reads the locks of elections that Judge needs. A missing lock is an empty one.
func (r *LockReader) Read(ctx context.Context, elections []Election) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	for _, e := range elections {
		r.mu.Lock()
		last := r.read[e.name()]
		r.mu.Unlock()
		if e.Leading || e.Phase == disabled || last.renewed && e.Acting && isRecord(last.Election, e) {
			continue
		}
		found := inspect.Election{State: unreachable}
		switch l, exists, err := r.lock(ctx, e); {
		case err != nil:
		case exists:
			found = inspect.Of(l)
		default:
			found.State = inspect.Empty
		}
		r.mu.Lock()
		r.read[e.name()] = lastRead{found, isRecord(last.Election, e) && isRecord(found, e) && found.Renewed.After(last.Renewed)}
		r.mu.Unlock()
	}
}

// lock returns the lock object of an election, and false if there is no lock.
func (r *LockReader) lock(ctx context.Context, e Election) (l inspect.Lock, found bool, err error) {
	if e.Kind == inspect.ConfigMap {
		var configMap *corev1.ConfigMap
		if configMap, err = r.client.Kube().CoreV1().ConfigMaps(e.Namespace).Get(ctx, e.Lock, metav1.GetOptions{}); err == nil {
			l, found = inspect.FromConfigMap(&configMap.ObjectMeta)
		}
	} else {
		var lease *coordinationv1.Lease
		if lease, err = r.client.Kube().CoordinationV1().Leases(e.Namespace).Get(ctx, e.Lock, metav1.GetOptions{}); err == nil {
			l, found = inspect.FromLease(lease)
		}
	}
	l.At = r.clock.Now()
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return l, found, err
}

// Judge returns the election with the state of its lock, if that differs from what the elector observes.
func (r *LockReader) Judge(e Election) Election {
	r.mu.Lock()
	last, known := r.read[e.name()]
	r.mu.Unlock()
	if !known || e.Leading || e.Phase == disabled {
		return e
	}
	switch last.State {
	case inspect.Expired, inspect.Doubtful:
		if isRecord(last.Election, e) {
			e.LockState = last.State
			e.LockText = last.StateText()
			e.Acting = e.Acting && last.State == inspect.Doubtful
		}
	case inspect.Unreadable, unreachable:
		if e.Leader == "" || !e.Acting {
			e.LockState = last.State
			e.LockText = string(last.State)
			for _, problem := range last.Problems {
				e.Problem = problem
			}
		}
	case inspect.Leads, inspect.Holds, inspect.Nominated, inspect.Free, inspect.Empty: // the elector reads it too
	}
	return e
}

// isRecord reports whether the lock that was read has the record that the elector observes.
func isRecord(read inspect.Election, e Election) bool {
	return read.Holder == e.Leader && read.Transitions == e.Transitions
}
