package k8sresourcelock

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// LeaseLock keeps the record in a Lease, and its key in an annotation of it.
//
// Set the fields, then leave them alone. Get, Create and Update share one memory of
// the object last read or written by them, so callers of these on one lock value
// must take turns; Read, Write and Watch may be called at any time.
type LeaseLock struct {
	// LeaseMeta names the lock. Its labels, annotations and owner references are
	// given to a Lease that this lock creates; of an existing one they change nothing.
	LeaseMeta  metav1.ObjectMeta
	Client     coordinationv1client.LeasesGetter
	LockConfig ResourceLockConfig
	// Shared, if given, lets this lock share the watch of its namespace with others.
	Shared *Shared

	last memory
}

var (
	_ Versioned = (*LeaseLock)(nil)
	_ Watchable = (*LeaseLock)(nil)
	_ Annotated = (*LeaseLock)(nil)

	_ Subscribable = (*LeaseLock)(nil)
)

var leases = &format[*coordinationv1.Lease]{
	word:     "lease",
	resource: coordinationv1.Resource("leases"),
	blank: func() *coordinationv1.Lease {
		return &coordinationv1.Lease{TypeMeta: metav1.TypeMeta{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease"}}
	},
	snapshot: LeaseSnapshot,
	encode:   encodeLease,
}

// LeaseSnapshot decodes a Lease that serves as a lock. It neither changes the object
// nor panics on anything in it; the Snapshot shares its contents. Give it the object with
// managedFields, as the API server sent it: they tell whether the holder's key is the
// present holder's. The Snapshot's Object is without them.
func LeaseSnapshot(lease *coordinationv1.Lease) Snapshot {
	if lease == nil {
		return Snapshot{}
	}
	kept := *lease
	kept.ManagedFields = nil
	snap := Snapshot{
		Exists:          true,
		UID:             lease.UID,
		ResourceVersion: lease.ResourceVersion,
		Annotations:     annotationsOf(lease.Annotations),
		Object:          &kept,
	}
	snap.Strategy, snap.PreferredHolder = coordination(lease)
	if !carriesRecord(&lease.Spec) {
		return snap
	}
	record := decodeSpec(&lease.Spec)
	record.HolderKey = recordedKey(lease)
	snap.Raw = leaseBytes(record)
	if err := checkRecord(record); err != nil {
		snap.Unreadable = unreadable("%w", err)
		return snap
	}
	snap.Record = record
	return snap
}

// coordination reads a coordinator's strategy and preferred holder, from the spec or from the
// annotations that stand for it.
func coordination(lease *coordinationv1.Lease) (strategy, preferred string) {
	strategy, preferred = string(value(lease.Spec.Strategy)), value(lease.Spec.PreferredHolder)
	if strategy == "" {
		strategy = lease.Annotations[StrategyAnnotation]
	}
	if preferred == "" {
		preferred = lease.Annotations[PreferredHolderAnnotation]
	}
	return strategy, preferred
}

func carriesRecord(spec *coordinationv1.LeaseSpec) bool {
	return spec.HolderIdentity != nil || spec.LeaseDurationSeconds != nil || spec.AcquireTime != nil ||
		spec.RenewTime != nil || spec.LeaseTransitions != nil
}

// decodeSpec turns pointers into values, once, at the edge: nil is zero.
func decodeSpec(spec *coordinationv1.LeaseSpec) LeaderElectionRecord {
	return LeaderElectionRecord{
		HolderIdentity:       value(spec.HolderIdentity),
		LeaseDurationSeconds: int(value(spec.LeaseDurationSeconds)),
		AcquireTime:          utc(metav1.Time(value(spec.AcquireTime))),
		RenewTime:            utc(metav1.Time(value(spec.RenewTime))),
		LeaderTransitions:    int(value(spec.LeaseTransitions)),
	}
}

func value[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}

// leaseBytes are the bytes by which a change of a Lease's record shows: the record's
// JSON, but with the microseconds that a Lease stores and its peers write.
func leaseBytes(r LeaderElectionRecord) []byte {
	raw, _ := json.Marshal(struct { // strings, numbers and formatted times: there is nothing to refuse
		HolderIdentity       string           `json:"holderIdentity"`
		HolderKey            string           `json:"holderKey"`
		LeaseDurationSeconds int              `json:"leaseDurationSeconds"`
		AcquireTime          metav1.MicroTime `json:"acquireTime"`
		RenewTime            metav1.MicroTime `json:"renewTime"`
		LeaderTransitions    int              `json:"leaderTransitions"`
	}{
		r.HolderIdentity, r.HolderKey, r.LeaseDurationSeconds,
		metav1.MicroTime(r.AcquireTime), metav1.MicroTime(r.RenewTime), r.LeaderTransitions,
	})
	return raw
}

// encodeLease leaves the fields of a coordinator (strategy, preferredHolder) alone, except that it removes
// a preferredHolder that is the holder now. The holder is never nil: kube-apiserver's own coordinator would crash on it.
func encodeLease(lease *coordinationv1.Lease, r LeaderElectionRecord) error {
	if r.LeaderTransitions > math.MaxInt32 {
		return fmt.Errorf("leaderTransitions %d does not fit into a Lease: delete the ConfigMap lock that counts so far, its next holder begins at 0", r.LeaderTransitions)
	}
	seconds, transitions := int32(r.LeaseDurationSeconds), int32(r.LeaderTransitions)
	lease.Spec.HolderIdentity = &r.HolderIdentity
	lease.Spec.LeaseDurationSeconds = &seconds
	lease.Spec.AcquireTime = leaseTime(r.AcquireTime)
	lease.Spec.RenewTime = leaseTime(r.RenewTime)
	lease.Spec.LeaseTransitions = &transitions
	if r.HolderIdentity != "" && value(lease.Spec.PreferredHolder) == r.HolderIdentity {
		lease.Spec.PreferredHolder = nil
	}
	if r.HolderIdentity != "" && lease.Annotations[PreferredHolderAnnotation] == r.HolderIdentity {
		delete(lease.Annotations, PreferredHolderAnnotation)
	}
	if r.HolderKey == "" {
		delete(lease.Annotations, LeaseHolderKey)
		return nil
	}
	if lease.Annotations == nil {
		lease.Annotations = make(map[string]string, 1)
	}
	lease.Annotations[LeaseHolderKey] = r.HolderKey
	return nil
}

// leaseTime is in whole seconds, as in a ConfigMap. That is also how a record of
// ours is told from a peer's (see recordedKey).
func leaseTime(t metav1.Time) *metav1.MicroTime {
	if t.IsZero() {
		return nil
	}
	return &metav1.MicroTime{Time: t.UTC().Truncate(time.Second)}
}

func (l *LeaseLock) access() access[*coordinationv1.Lease] {
	a := access[*coordinationv1.Lease]{format: leases, meta: &l.LeaseMeta, config: &l.LockConfig, last: &l.last}
	if l.Client != nil {
		a.client = l.Client.Leases(l.LeaseMeta.Namespace)
	}
	return a
}

// Validate reports every mistake in the lock's fields; it sends no request.
func (l *LeaseLock) Validate() error {
	return validate("lease", &l.LeaseMeta, &l.LockConfig, l.Client != nil)
}

// Read implements Versioned.
func (l *LeaseLock) Read(ctx context.Context) (Snapshot, error) { return l.access().read(ctx) }

// Write implements Versioned.
func (l *LeaseLock) Write(ctx context.Context, base Snapshot, record LeaderElectionRecord, notes map[string]string) (Snapshot, error) {
	return l.access().write(ctx, base, record, notes)
}

// Annotate implements Annotated.
func (l *LeaseLock) Annotate(ctx context.Context, base Snapshot, notes map[string]string) (Snapshot, error) {
	return l.access().annotate(ctx, base, notes)
}

// Rehearse asks the server whether it would accept a Write, and changes nothing.
func (l *LeaseLock) Rehearse(ctx context.Context, base Snapshot, record LeaderElectionRecord, notes map[string]string) error {
	return l.access().rehearse(ctx, base, record, notes)
}

// Watch implements Watchable.
func (l *LeaseLock) Watch(ctx context.Context, from string, up func(), seen func(Snapshot)) (string, error) {
	return l.access().watch(ctx, from, up, seen)
}

// Subscribe implements Subscribable: it shares a watch where there is a Shared.
func (l *LeaseLock) Subscribe(ctx context.Context, wake func()) Subscription {
	return newLockWatch(ctx, l, l.Shared, l.LeaseMeta.Namespace, l.LeaseMeta.Name, wake)
}

// Get returns the record and the bytes by which it is compared. The error is a NotFound when
// there is no such Lease, and wraps ErrUnreadable when its record cannot be read. A Lease
// without a record gives a zero record, nil bytes and no error.
func (l *LeaseLock) Get(ctx context.Context) (*LeaderElectionRecord, []byte, error) {
	return l.access().plain(l).get(ctx)
}

// Create makes the Lease; an AlreadyExists, which IsConflict reports too, when there
// is one.
func (l *LeaseLock) Create(ctx context.Context, ler LeaderElectionRecord) error {
	return l.access().plain(l).create(ctx, ler)
}

// Update replaces the record of the Lease that Get, Create or Update saw last.
func (l *LeaseLock) Update(ctx context.Context, ler LeaderElectionRecord) error {
	return l.access().plain(l).update(ctx, ler)
}

// RecordEvent writes an Event about the Lease, if there is a recorder.
func (l *LeaseLock) RecordEvent(s string) { l.access().recordEvent(corev1.EventTypeNormal, s) }

// RecordWarning implements Warning.
func (l *LeaseLock) RecordWarning(s string) { l.access().recordEvent(corev1.EventTypeWarning, s) }

// Identity is the candidate's own.
func (l *LeaseLock) Identity() string { return l.LockConfig.Identity }

// Key is the candidate's rank as it is written into the lock.
func (l *LeaseLock) Key() string { return l.LockConfig.Key }

// Describe is "namespace/name".
func (l *LeaseLock) Describe() string { return describe(&l.LeaseMeta) }
