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
	"incumbent.dev/incumbent/pilot/leaderelection"
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

// NewLockReader returns a LockReader for the cluster of the client.
func NewLockReader(client kube.Client) (*LockReader, error) {
	r := &LockReader{clock: &apirequest.ServerClock{}, read: map[name]lastRead{}}
	var err error
	r.client, err = kube.Derive(client, kube.WithWrapTransport(r.clock.Wrap))
	return r, err
}

// Read reads the locks of elections that Judge needs.
func (r *LockReader) Read(ctx context.Context, elections []inspect.Election) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	for _, e := range elections {
		r.mu.Lock()
		last := r.read[nameOf(e)]
		r.mu.Unlock()
		if isKnown(e) || last.renewed && e.Acting() && isRecord(last.Election, e) {
			continue
		}
		found := inspect.Of(inspect.Lock{Kind: e.Lock, Namespace: e.Namespace, Name: e.Name})
		switch l, exists, err := r.lock(ctx, e); {
		case err != nil:
			found.State = inspect.Unread
		case exists:
			found = inspect.Of(l)
		}
		r.mu.Lock()
		r.read[nameOf(e)] = lastRead{found, isRecord(last.Election, e) && isRecord(found, e) && found.Renewed.After(last.Renewed)}
		r.mu.Unlock()
	}
}

// lock returns the lock object of an election, and false if there is no lock.
func (r *LockReader) lock(ctx context.Context, e inspect.Election) (l inspect.Lock, found bool, err error) {
	if e.Lock == inspect.ConfigMap {
		var configMap *corev1.ConfigMap
		if configMap, err = r.client.Kube().CoreV1().ConfigMaps(e.Namespace).Get(ctx, e.Name, metav1.GetOptions{}); err == nil {
			l, found = inspect.FromConfigMap(&configMap.ObjectMeta)
		}
	} else {
		var lease *coordinationv1.Lease
		if lease, err = r.client.Kube().CoordinationV1().Leases(e.Namespace).Get(ctx, e.Name, metav1.GetOptions{}); err == nil {
			l, found = inspect.FromLease(lease)
		}
	}
	l.At = r.clock.Now()
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return l, found, err
}

// Judge returns the election as it was read, if the elector cannot know its state.
func (r *LockReader) Judge(e inspect.Election) inspect.Election {
	if r == nil || isKnown(e) {
		return e
	}
	r.mu.Lock()
	last, known := r.read[nameOf(e)]
	r.mu.Unlock()
	found := last.Election
	found.Cluster, found.Ranked, found.Process = e.Cluster, e.Ranked, e.Process
	switch expires := found.State == inspect.Expired || found.State == inspect.Doubtful; {
	case !known:
	case e.State == inspect.Unread, expires && isRecord(found, e):
		return found
	case found.State == inspect.Unread && !e.Acting():
		e.State = inspect.Unread
	}
	return e
}

// isKnown reports whether the process does not need the lock to judge the election.
func isKnown(e inspect.Election) bool {
	return e.Process.Leading || e.Process.Phase == leaderelection.Disabled
}

// isRecord reports whether the lock that was read has the record that the elector observes.
func isRecord(read, e inspect.Election) bool {
	return read.Holder == e.Holder && read.Transitions == e.Transitions
}
