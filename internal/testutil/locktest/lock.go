package locktest

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Locker is a lock of package k8sresourcelock.
type Locker interface {
	k8sresourcelock.Lock
	Watch(ctx context.Context, from string, connected func(), changed func(k8sresourcelock.Snapshot)) (resume string, err error)
}

// Lock is one candidate's lock on a Store, with its own way there.
type Lock struct {
	Locker
	*Client
}

// Lock returns the lock of a new candidate.
func (s *Store) Lock(identity, key string) *Lock {
	return s.LockWith(k8sresourcelock.ResourceLockConfig{Identity: identity, Key: key})
}

// LockWith returns the lock of a new candidate with this configuration.
func (s *Store) LockWith(config k8sresourcelock.ResourceLockConfig) *Lock {
	c := s.Client(config.Identity)
	return &Lock{Client: c, Locker: c.lock(config)}
}

func (c *Client) lock(config k8sresourcelock.ResourceLockConfig) Locker {
	meta := metav1.ObjectMeta{Namespace: Namespace, Name: Name}
	if c.store.kind == ConfigMap {
		return &k8sresourcelock.ConfigMapLock{ConfigMapMeta: meta, Client: c, LockConfig: config}
	}
	lock := &k8sresourcelock.LeaseLock{LeaseMeta: meta, Client: c, LockConfig: config}
	if c.store.sharing() {
		lock.Shared = &k8sresourcelock.Shared{Client: c, MinSharedWatches: 1}
	}
	return lock
}

// Plain returns the lock with the methods of Interface only. An elector must poll it.
func (l *Lock) Plain() k8sresourcelock.Interface {
	return struct {
		k8sresourcelock.Interface
		k8sresourcelock.Keyed
	}{l.Locker, l.Locker}
}

// Unwatched returns a lock that cannot be watched.
func (l *Lock) Unwatched() k8sresourcelock.Lock { return unwatched{l.Locker} }

type unwatched struct{ k8sresourcelock.Lock }

func (unwatched) Subscribe(context.Context, func()) k8sresourcelock.Subscription { return nil }

// Subscribed returns the lock without Watch, so that its watch is a Subscription, which may be shared.
func Subscribed(lock *k8sresourcelock.LeaseLock) k8sresourcelock.Lock {
	return struct{ k8sresourcelock.Lock }{lock}
}

// ShareWatches makes new Lease locks use a Shared for their watches, one for each client.
func (s *Store) ShareWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shared = true
}

func (s *Store) sharing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shared
}
