package k8sresourcelock

import (
	"context"
	"errors"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"incumbent.dev/incumbent/internal/record"
)

// object is a ConfigMap or a Lease.
type object interface {
	runtime.Object
	metav1.Object
}

// client has the methods of the typed clients that locks use.
type client[T object] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error)
	Update(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// format contains what differs between ConfigMap and Lease locks.
type format[T object] struct {
	// kind is the kind in errors.
	kind     string
	resource schema.GroupResource
	// blank returns an empty object with its type set.
	blank func() T
	// snapshot decodes an object. It neither keeps nor changes the object.
	snapshot func(T) Snapshot
	// encode stores a record in an object and preserves everything else.
	encode func(T, LeaderElectionRecord) error
}

// access reads and writes one lock object.
type access[T object] struct {
	*format[T]
	client client[T]
	store  any // the Client of the lock
	meta   *metav1.ObjectMeta
	config *ResourceLockConfig
	labels map[string]string // set by each write of a record
	last   *memory
}

// describe returns the name of the lock without its kind, as client-go does.
func describe(meta *metav1.ObjectMeta) string { return meta.Namespace + "/" + meta.Name }

// wrap adds the lock and the verb to an error.
func (a access[T]) wrap(verb string, err error) error {
	return fmt.Errorf("%s %s: %s: %w", a.kind, describe(a.meta), verb, err)
}

func (a access[T]) read(ctx context.Context) (Snapshot, error) {
	if a.client == nil {
		return Snapshot{}, a.wrap("get", errNoClient)
	}
	snap, err := a.get(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	if snap.Exists {
		a.last.sawObject(snap)
	}
	return snap, nil
}

func (a access[T]) get(ctx context.Context) (Snapshot, error) {
	if a.knownRegister() != nil {
		return a.readUnversioned(ctx)
	}
	obj, err := a.client.Get(ctx, a.meta.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Snapshot{}, nil
	}
	if err != nil {
		return Snapshot{}, a.wrap("get", err)
	}
	if isUnversioned(obj.GetUID()) {
		return a.readUnversioned(ctx)
	}
	return a.snapshot(obj), nil
}

func (a access[T]) write(ctx context.Context, base Snapshot, record LeaderElectionRecord, annotations map[string]string) (Snapshot, error) {
	snap, err := a.send(ctx, base, record, annotations, nil)
	if err == nil {
		a.last.sawObject(snap)
	}
	return snap, err
}

// dryRun returns an error if the API server would reject the write. Nothing is written.
func (a access[T]) dryRun(ctx context.Context, base Snapshot, record LeaderElectionRecord, annotations map[string]string) error {
	_, err := a.send(ctx, base, record, annotations, []string{metav1.DryRunAll})
	return err
}

func (a access[T]) send(ctx context.Context, base Snapshot, record LeaderElectionRecord, annotations map[string]string, dryRun []string) (Snapshot, error) {
	verb, send := "update", a.update
	if !base.Exists {
		verb, send = "create", a.create
	}
	if a.client == nil {
		return Snapshot{}, a.wrap(verb, errNoClient)
	}
	obj, err := a.compose(base, record, annotations)
	if err != nil {
		return Snapshot{}, a.wrap(verb, err)
	}
	snap, err := send(ctx, base, obj, dryRun)
	if err != nil {
		return Snapshot{}, a.wrap(verb, err)
	}
	return snap, nil
}

func (a access[T]) annotate(ctx context.Context, base Snapshot, annotations map[string]string) (Snapshot, error) {
	if a.client == nil {
		return Snapshot{}, a.wrap("annotate", errNoClient)
	}
	if err := checkAnnotations(annotations); err != nil {
		return Snapshot{}, a.wrap("annotate", err)
	}
	if !base.Exists {
		return Snapshot{}, a.wrap("annotate", errNoObject)
	}
	obj, err := a.foundation(base)
	if err != nil {
		return Snapshot{}, a.wrap("annotate", err)
	}
	obj.SetAnnotations(applyAnnotations(obj.GetAnnotations(), annotations))
	snap, err := a.update(ctx, base, obj, nil)
	if err != nil {
		return Snapshot{}, a.wrap("annotate", err)
	}
	a.last.sawObject(snap)
	return snap, nil
}

// compose returns the object to send. It must not change base, because readers share it.
func (a access[T]) compose(base Snapshot, next LeaderElectionRecord, annotations map[string]string) (T, error) {
	var none T
	if err := errors.Join(checkWritable(next), checkAnnotations(annotations)); err != nil {
		return none, err
	}
	obj, err := a.foundation(base)
	if err != nil {
		return none, err
	}
	if err := a.encode(obj, next); err != nil {
		return none, err
	}
	if len(a.labels) > 0 {
		labels := maps.Clone(obj.GetLabels())
		if labels == nil {
			labels = make(map[string]string, len(a.labels))
		}
		maps.Copy(labels, a.labels)
		obj.SetLabels(labels)
	}
	if preferred, ok := annotations[record.PreferredHolderAnnotation]; ok && preferred == "" {
		removePreference(obj)
	}
	obj.SetAnnotations(applyAnnotations(obj.GetAnnotations(), annotations))
	return obj, nil
}

// foundation returns the object that a write changes: a copy of the object of base, or a new object.
func (a access[T]) foundation(base Snapshot) (T, error) {
	var none T
	if !base.Exists {
		obj, meta := a.blank(), a.meta.DeepCopy()
		obj.SetNamespace(meta.Namespace)
		obj.SetName(meta.Name)
		obj.SetLabels(meta.Labels)
		obj.SetAnnotations(meta.Annotations)
		obj.SetOwnerReferences(meta.OwnerReferences)
		return obj, nil
	}
	shown, ok := base.Object.(T)
	if !ok {
		return none, fmt.Errorf("base of the write is a %T", base.Object)
	}
	// Without a version the API server would overwrite any ConfigMap of that name. Without a UID it would recreate
	// a deleted Lease: a PUT can create a Lease, and then only the UID is checked. An unversioned store checks
	// neither.
	if base.ResourceVersion == "" || base.UID == "" && shown.GetUID() != "" {
		return none, fmt.Errorf("base of the write has resourceVersion %q and UID %q", base.ResourceVersion, base.UID)
	}
	obj := shown.DeepCopyObject().(T)
	if !isUnversioned(base.UID) {
		obj.SetResourceVersion(base.ResourceVersion)
		obj.SetUID(base.UID)
	}
	obj.SetManagedFields(nil) // the API server keeps its own
	return obj, nil
}

func (a access[T]) create(ctx context.Context, _ Snapshot, obj T, dryRun []string) (Snapshot, error) {
	stored, err := a.client.Create(ctx, obj, metav1.CreateOptions{DryRun: dryRun})
	if err != nil {
		if apierrors.IsAlreadyExists(err) {
			err = conflict(err)
		}
		return Snapshot{}, err
	}
	if isUnversioned(stored.GetUID()) && dryRun == nil {
		return a.created(stored)
	}
	return a.snapshot(stored), nil
}

func (a access[T]) update(ctx context.Context, base Snapshot, obj T, dryRun []string) (Snapshot, error) {
	if isUnversioned(base.UID) {
		if dryRun != nil {
			return base, nil // a fake clientset would execute it
		}
		return a.replace(ctx, base, obj)
	}
	stored, err := a.client.Update(ctx, obj, metav1.UpdateOptions{DryRun: dryRun})
	if err != nil {
		return Snapshot{}, conflict(err)
	}
	return a.snapshot(stored), nil
}
