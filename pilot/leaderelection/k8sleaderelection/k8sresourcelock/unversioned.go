package k8sresourcelock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Some stores keep objects as they are sent: they give them neither UID nor
// resourceVersion, and compare neither. client-go's fake clientsets are such. A lock then
// gives its object both by itself, so that changes can be told apart, and compares before
// it writes. That is no compare-and-swap: it excludes the electors of one process from
// each other, and nobody else.

// madeUID begins the UIDs that are given here.
const madeUID = "unversioned-"

// Unversioned reports whether the object's store keeps no versions, so that it cannot
// refuse a write that was decided on an outdated state.
func (s Snapshot) Unversioned() bool {
	if pair, ok := s.Object.(*Pair); ok {
		return pair.Primary.Unversioned() || pair.Secondary.Unversioned()
	}
	return s.Exists && (s.UID == "" && s.Object != nil || strings.HasPrefix(string(s.UID), madeUID))
}

// unversioned reports the same of an object. An API server gives every object a UID.
func unversioned(uid types.UID) bool { return uid == "" || strings.HasPrefix(string(uid), madeUID) }

// made counts what is given to objects of unversioned stores. Whoever compares and writes
// holds the lock: such a store is memory, it does not keep anybody waiting.
var made struct {
	sync.Mutex
	last uint64
}

// nextVersion is greater than all before it, and than that of the object it is for. Its
// caller holds the lock.
func nextVersion(before string) string {
	v, _ := strconv.ParseUint(before, 10, 64) // none is 0
	made.last = max(made.last, v) + 1
	return strconv.FormatUint(made.last, 10)
}

// show decodes an object as its store showed it. One without UID and version may be what others put
// into an unversioned store, or a new one of ours that has no version yet: it is looked at
// again, so that what it is given follows what was seen before.
func (a access[T]) show(ctx context.Context, obj T) (Snapshot, error) {
	if obj.GetUID() != "" || obj.GetResourceVersion() != "" {
		return a.snapshot(obj), nil
	}
	made.Lock()
	defer made.Unlock()
	obj, err := a.client.Get(ctx, a.meta.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Snapshot{}, nil
	}
	if err != nil {
		return Snapshot{}, a.wrap("get", err)
	}
	snap := a.snapshot(obj)
	if snap.UID == "" && snap.ResourceVersion == "" {
		snap.ResourceVersion = nextVersion(snap.ResourceVersion)
	}
	return snap, nil
}

// replace is update for an unversioned store.
func (a access[T]) replace(ctx context.Context, obj T) (T, error) {
	var none T
	made.Lock()
	defer made.Unlock()
	present, err := a.client.Get(ctx, a.meta.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return none, fmt.Errorf("%w: %w", ErrConflict, err)
	}
	if err != nil {
		return none, err
	}
	uid := obj.GetUID()
	if present.GetUID() != uid || uid != "" && present.GetResourceVersion() != obj.GetResourceVersion() {
		return none, fmt.Errorf("%w: it has UID %q and resourceVersion %q", ErrConflict, present.GetUID(), present.GetResourceVersion())
	}
	version := nextVersion(obj.GetResourceVersion())
	if uid == "" {
		obj.SetUID(types.UID(madeUID + version))
	}
	obj.SetResourceVersion(version)
	return a.client.Update(ctx, obj, metav1.UpdateOptions{})
}
