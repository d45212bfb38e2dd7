package locktest

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Lock is one candidate's lock on a Store, with its own way there.
type Lock struct {
	k8sresourcelock.Lock
	*apiserver.Client
}

// Lock returns the lock of a new candidate.
func (s *Store) Lock(identity, key string) *Lock {
	return s.LockWith(k8sresourcelock.ResourceLockConfig{Identity: identity, Key: key})
}

// LockWith returns the lock of a new candidate with this configuration.
func (s *Store) LockWith(config k8sresourcelock.ResourceLockConfig) *Lock {
	c := s.Client(config.Identity)
	return &Lock{Client: c, Lock: s.lock(c, config)}
}

func (s *Store) lock(c *apiserver.Client, config k8sresourcelock.ResourceLockConfig) k8sresourcelock.Lock {
	meta := metav1.ObjectMeta{Namespace: Namespace, Name: Name}
	if s.kind == ConfigMap {
		return &k8sresourcelock.ConfigMapLock{ConfigMapMeta: meta, Client: c, LockConfig: config}
	}
	lock := &k8sresourcelock.LeaseLock{LeaseMeta: meta, Client: c, LockConfig: config}
	if s.shared {
		lock.Shared = &k8sresourcelock.Shared{Client: c, MinSharedWatches: 1}
	}
	return lock
}

// Plain returns the lock with the methods of Interface only. An elector must poll it.
func (l *Lock) Plain() k8sresourcelock.Interface {
	return struct {
		k8sresourcelock.Interface
		k8sresourcelock.Keyed
	}{l.Lock, l.Lock}
}

// Unwatched returns a lock that cannot be watched.
func (l *Lock) Unwatched() k8sresourcelock.Lock { return unwatched{l.Lock} }

type unwatched struct{ k8sresourcelock.Lock }

func (unwatched) Subscribe(context.Context, func()) k8sresourcelock.Subscription { return nil }

// ShareWatches makes new Lease locks use a Shared for their watches, one for each client.
func (s *Store) ShareWatches() { s.shared = true }
