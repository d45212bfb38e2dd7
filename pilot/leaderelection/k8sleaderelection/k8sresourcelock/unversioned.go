package k8sresourcelock

import (
	"context"
	"fmt"
	"reflect"
	runtimepkg "runtime"
	"strconv"
	"strings"
	"sync"
	"weak"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/apirequest"
)

// client-go's fake clientsets store objects as sent: they set neither UID nor resourceVersion and compare neither.
// For such a store, a register in this process has both, and locks compare with it before they write. This is not a
// compare-and-swap. It excludes only electors of the same process.
//
// uidPrefix begins the UIDs of registers.
const uidPrefix = "unversioned-"

// Unversioned reports whether the store of the object keeps no versions. Such a store cannot reject a write with
// an outdated base.
func (s Snapshot) Unversioned() bool {
	return s.Exists && s.Object != nil && isUnversioned(s.UID)
}

// isUnversioned reports whether the store of an object with this UID keeps no versions. An API server sets a UID
// on every object.
func isUnversioned(uid types.UID) bool { return uid == "" || strings.HasPrefix(string(uid), uidPrefix) }

// register has the state of one object in an unversioned store, for all locks of this process. Its mutex is held during
// the requests for the object, so that they are compared and stored one after the other.
type register struct {
	client any // keeps the store, so that its address stays unique

	mu      sync.Mutex
	object  runtime.Object // as last seen; nil: it does not exist
	uid     types.UID
	version uint64
}

// registerKey identifies an object. store is the address of the store.
type registerKey struct {
	store                 uintptr
	kind, namespace, name string
}

var registers struct {
	sync.Mutex
	of       map[registerKey]weak.Pointer[register]
	versions uint64 // generated in this process
}

// registerOf returns the register of an object. It exists as long as a lock uses it.
func registerOf(client any, kind string, meta *metav1.ObjectMeta) *register {
	key := registerKey{storeOf(client), kind, meta.Namespace, meta.Name}
	registers.Lock()
	defer registers.Unlock()
	if r := registers.of[key].Value(); r != nil {
		return r
	}
	if registers.of == nil {
		registers.of = map[registerKey]weak.Pointer[register]{}
	}
	r := &register{client: client}
	registers.of[key] = weak.Make(r)
	runtimepkg.AddCleanup(r, forget, key)
	return r
}

func forget(key registerKey) {
	registers.Lock()
	defer registers.Unlock()
	if registers.of[key].Value() == nil {
		delete(registers.of, key)
	}
}

// storeOf returns the address of the store of a client. A fake clientset returns a new typed client for each call, and all of
// them have a field Fake.
func storeOf(client any) uintptr {
	v := reflect.ValueOf(client)
	if v.Kind() != reflect.Pointer {
		return 0
	}
	if v.Elem().Kind() == reflect.Struct {
		if f := v.Elem().FieldByName("Fake"); f.IsValid() && f.Kind() == reflect.Pointer {
			return f.Pointer()
		}
	}
	return v.Pointer()
}

// see records the present object. The caller holds mu.
func (r *register) see(obj runtime.Object) {
	if r.object != nil && equality.Semantic.DeepEqual(r.object, obj) {
		return
	}
	r.advance()
	if r.object == nil {
		r.uid = types.UID(uidPrefix + strconv.FormatUint(r.version, 10))
	}
	r.object = obj.DeepCopyObject()
}

// miss records that the object does not exist. The version is newer than that of the deleted object, as in an API server,
// so that electors do not ignore the deletion as outdated. The caller holds mu.
func (r *register) miss() Snapshot {
	if r.object != nil {
		r.advance()
	}
	r.object = nil
	return Snapshot{ResourceVersion: strconv.FormatUint(r.version, 10)}
}

// advance gives the register a new version. The caller holds mu.
func (r *register) advance() {
	registers.Lock()
	defer registers.Unlock()
	registers.versions++
	r.version = registers.versions
}

// show returns the snapshot with UID and version of the register. The caller holds mu.
func (r *register) show(snap Snapshot) Snapshot {
	snap.UID = r.uid
	snap.ResourceVersion = strconv.FormatUint(r.version, 10)
	return snap
}

// register returns the register of the lock object, which remains the register of the lock.
func (a access[T]) register() *register {
	a.last.mu.Lock()
	defer a.last.mu.Unlock()
	if a.last.register == nil {
		a.last.register = registerOf(a.store, a.kind, a.meta)
	}
	return a.last.register
}

// knownRegister returns the register if the store has turned out to be unversioned.
func (a access[T]) knownRegister() *register {
	a.last.mu.Lock()
	defer a.last.mu.Unlock()
	return a.last.register
}

// show decodes the object of a watch event. In an unversioned store the object is read again, so that it is not older than the register.
func (a access[T]) show(ctx context.Context, obj T) (Snapshot, error) {
	if a.knownRegister() == nil && (obj.GetUID() != "" || obj.GetResourceVersion() != "") {
		return a.snapshot(obj), nil
	}
	return a.readUnversioned(ctx)
}

func (a access[T]) readUnversioned(ctx context.Context) (Snapshot, error) {
	r := a.register()
	r.mu.Lock()
	defer r.mu.Unlock()
	obj, err := a.client.Get(ctx, a.meta.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return r.miss(), nil
	}
	if err != nil {
		return Snapshot{}, a.wrap("get", err)
	}
	if !isUnversioned(obj.GetUID()) {
		return a.snapshot(obj), nil
	}
	r.see(obj)
	return r.show(a.snapshot(obj)), nil
}

// created returns the snapshot of an object that was created in an unversioned store.
func (a access[T]) created(stored T) (Snapshot, error) {
	r := a.register()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.object != nil && !equality.Semantic.DeepEqual(r.object, stored) {
		return Snapshot{}, fmt.Errorf("%w: another elector wrote the created object", ErrConflict)
	}
	r.see(stored)
	return r.show(a.snapshot(stored)), nil
}

// replace updates an object in an unversioned store, if no lock of this process has seen another object than base since.
func (a access[T]) replace(ctx context.Context, base Snapshot, obj T) (Snapshot, error) {
	r := a.register()
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := strconv.FormatUint(r.version, 10); r.object == nil || r.uid != base.UID || now != base.ResourceVersion {
		return Snapshot{}, fmt.Errorf("%w: UID %q, version %s", ErrConflict, r.uid, now)
	}
	stored, err := a.client.Update(ctx, obj, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		r.miss()
	}
	if err != nil {
		return Snapshot{}, conflict(err)
	}
	r.see(stored)
	return r.show(a.snapshot(stored)), nil
}

// conflict adds ErrConflict to an error that shows that the object has changed.
func conflict(err error) error {
	if apirequest.Outdated(err) {
		return fmt.Errorf("%w: %w", ErrConflict, err)
	}
	return err
}
