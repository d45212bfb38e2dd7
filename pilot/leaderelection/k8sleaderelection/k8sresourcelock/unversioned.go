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

// client-go's fake clientsets store objects as sent: they set neither UID nor resourceVersion and compare neither.
// On such a store the lock sets both and compares before it writes. This is not a compare-and-swap. It excludes
// only electors of the same process.
//
// uidPrefix begins the UIDs that a lock sets.
const uidPrefix = "unversioned-"

// Unversioned reports whether the store of the object keeps no versions. Such a store cannot reject a write with
// an outdated base.
func (s Snapshot) Unversioned() bool {
	if pair, ok := s.Object.(*Pair); ok {
		return pair.Primary.Unversioned() || pair.Secondary.Unversioned()
	}
	return s.Exists && s.Object != nil && isUnversioned(s.UID)
}

// isUnversioned reports whether the store of an object with this UID keeps no versions. An API server sets a UID
// on every object.
func isUnversioned(uid types.UID) bool { return uid == "" || strings.HasPrefix(string(uid), uidPrefix) }

// versions generates versions for unversioned stores. Its mutex is held during comparison and write. Such a store
// is in memory, so it does not block.
var versions struct {
	sync.Mutex
	last uint64
}

// nextVersion returns a version greater than all earlier ones and greater than before. The caller holds versions.
func nextVersion(before string) string {
	v, _ := strconv.ParseUint(before, 10, 64) // no version is 0
	versions.last = max(versions.last, v) + 1
	return strconv.FormatUint(versions.last, 10)
}

// show decodes an object. If the object has neither UID nor version, the store is unversioned. The object is then
// read again, so that its version is later than those seen before.
func (a access[T]) show(ctx context.Context, obj T) (Snapshot, error) {
	if obj.GetUID() != "" || obj.GetResourceVersion() != "" {
		return a.snapshot(obj), nil
	}
	versions.Lock()
	defer versions.Unlock()
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

// replace updates an object in an unversioned store.
func (a access[T]) replace(ctx context.Context, obj T) (T, error) {
	var none T
	versions.Lock()
	defer versions.Unlock()
	stored, err := a.client.Get(ctx, a.meta.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return none, fmt.Errorf("%w: %w", ErrConflict, err)
	}
	if err != nil {
		return none, err
	}
	uid := obj.GetUID()
	if stored.GetUID() != uid || uid != "" && stored.GetResourceVersion() != obj.GetResourceVersion() {
		return none, fmt.Errorf("%w: UID %q, resourceVersion %q", ErrConflict, stored.GetUID(), stored.GetResourceVersion())
	}
	version := nextVersion(obj.GetResourceVersion())
	if uid == "" {
		obj.SetUID(types.UID(uidPrefix + version))
	}
	obj.SetResourceVersion(version)
	return a.client.Update(ctx, obj, metav1.UpdateOptions{})
}
