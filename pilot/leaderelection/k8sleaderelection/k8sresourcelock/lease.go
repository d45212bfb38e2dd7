package k8sresourcelock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"

	"incumbent.dev/incumbent/internal/record"
)

// LeaseLock stores the record in a Lease, and its key in an annotation of the Lease.
//
// Do not change the fields after the first call. Get, Create and Update remember the object that they saw last, so
// they must not be called concurrently. Read, Write and Subscribe may be called at any time.
type LeaseLock struct {
	// LeaseMeta names the lock. Its labels, annotations and owner references are set only on a Lease that this
	// lock creates.
	LeaseMeta metav1.ObjectMeta
	// Client reads and writes Leases.
	Client coordinationv1client.LeasesGetter
	// LockConfig describes the candidate.
	LockConfig ResourceLockConfig
	// Labels are set on the Lease with each write of a record. Other labels are preserved. Optional.
	Labels map[string]string
	// Shared lets this lock use the watch of its namespace with other locks. Optional.
	Shared *Shared

	last memory
}

var _ Lock = (*LeaseLock)(nil)

var leases = &format[*coordinationv1.Lease]{
	kind:     "lease",
	resource: coordinationv1.Resource("leases"),
	blank: func() *coordinationv1.Lease {
		return &coordinationv1.Lease{TypeMeta: metav1.TypeMeta{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease"}}
	},
	snapshot: LeaseSnapshot,
	encode:   encodeLease,
}

// LeaseSnapshot decodes the Lease of a lock. It does not change the object. The Snapshot shares its content. The
// object must contain managedFields as sent by the API server, because they show whether the key belongs to the
// current holder. The Object of the Snapshot does not contain them.
func LeaseSnapshot(lease *coordinationv1.Lease) Snapshot {
	if lease == nil {
		return Snapshot{}
	}
	stored := *lease
	stored.ManagedFields = nil
	snap := Snapshot{
		Exists:          true,
		UID:             lease.UID,
		ResourceVersion: lease.ResourceVersion,
		Annotations:     annotationsOf(lease.Annotations),
		ManagedFields:   lease.ManagedFields,
		Object:          &stored,
	}
	snap.Strategy, snap.PreferredHolder = Coordination(lease)
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

// Coordination returns the strategy and preferred holder of a coordinator, from the spec or from the annotations
// that replace it.
func Coordination(lease *coordinationv1.Lease) (strategy, preferred string) {
	strategy, preferred = string(ptr.Deref(lease.Spec.Strategy, "")), ptr.Deref(lease.Spec.PreferredHolder, "")
	if strategy == "" {
		strategy = lease.Annotations[record.StrategyAnnotation]
	}
	if preferred == "" {
		preferred = lease.Annotations[record.PreferredHolderAnnotation]
	}
	return strategy, preferred
}

func carriesRecord(spec *coordinationv1.LeaseSpec) bool {
	return spec.HolderIdentity != nil || spec.LeaseDurationSeconds != nil || spec.AcquireTime != nil ||
		spec.RenewTime != nil || spec.LeaseTransitions != nil
}

// decodeSpec converts the spec without the fields of a coordinator. A nil field becomes a zero value.
func decodeSpec(spec *coordinationv1.LeaseSpec) LeaderElectionRecord {
	r := *LeaseSpecToLeaderElectionRecord(spec)
	r.Strategy = ""
	r.PreferredHolder = ""
	r.AcquireTime = utc(r.AcquireTime)
	r.RenewTime = utc(r.RenewTime)
	return r
}

// leaseBytes returns the record as JSON with microseconds, which Leases store and peers write. Different bytes
// mean that the record has changed.
func leaseBytes(r LeaderElectionRecord) []byte {
	raw, _ := json.Marshal(struct { // these types cannot fail
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

// encodeLease preserves the fields of a coordinator (strategy, preferredHolder). If the preferredHolder has become
// the holder, it removes the preferredHolder. The holder is never nil, because a nil holder crashes the
// coordinator of kube-apiserver.
func encodeLease(lease *coordinationv1.Lease, r LeaderElectionRecord) error {
	if r.LeaderTransitions > math.MaxInt32 {
		return fmt.Errorf("leaderTransitions %d does not fit into a Lease. Delete the ConfigMap lock: the count then starts again", r.LeaderTransitions)
	}
	seconds, transitions := int32(r.LeaseDurationSeconds), int32(r.LeaderTransitions)
	lease.Spec.HolderIdentity = &r.HolderIdentity
	lease.Spec.LeaseDurationSeconds = &seconds
	lease.Spec.AcquireTime = leaseTime(r.AcquireTime)
	lease.Spec.RenewTime = leaseTime(r.RenewTime)
	lease.Spec.LeaseTransitions = &transitions
	if r.Strategy != "" {
		lease.Spec.Strategy = &r.Strategy
	}
	if r.PreferredHolder != "" {
		lease.Spec.PreferredHolder = &r.PreferredHolder
	}
	if r.HolderIdentity != "" && ptr.Deref(lease.Spec.PreferredHolder, "") == r.HolderIdentity {
		lease.Spec.PreferredHolder = nil
	}
	if r.HolderIdentity != "" && lease.Annotations[record.PreferredHolderAnnotation] == r.HolderIdentity {
		delete(lease.Annotations, record.PreferredHolderAnnotation)
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

// removePreference removes the preferredHolder of a Lease.
func removePreference(obj runtime.Object) {
	if lease, ok := obj.(*coordinationv1.Lease); ok {
		lease.Spec.PreferredHolder = nil
	}
}

// leaseTime returns t in the resolution of a Lease.
func leaseTime(t metav1.Time) *metav1.MicroTime {
	if t.IsZero() {
		return nil
	}
	return &metav1.MicroTime{Time: t.UTC().Truncate(time.Microsecond)}
}

func (l *LeaseLock) access() access[*coordinationv1.Lease] {
	a := access[*coordinationv1.Lease]{format: leases, meta: &l.LeaseMeta, config: &l.LockConfig, labels: l.Labels, last: &l.last}
	if l.Client != nil {
		a.store = l.Client
		a.client = directLeases(l.Client).Leases(l.LeaseMeta.Namespace)
	}
	return a
}

// Validate implements Lock.
func (l *LeaseLock) Validate() error {
	return errors.Join(validate("lease", &l.LeaseMeta, &l.LockConfig, l.Client != nil), l.validateLabels())
}

func (l *LeaseLock) validateLabels() error {
	if err := metavalidation.ValidateLabels(l.Labels, field.NewPath("labels")).ToAggregate(); err != nil {
		return fmt.Errorf("lease lock %s: %w", l.Describe(), err)
	}
	return nil
}

// Read implements Lock.
func (l *LeaseLock) Read(ctx context.Context) (Snapshot, error) { return l.access().read(ctx) }

// Write implements Lock.
func (l *LeaseLock) Write(ctx context.Context, base Snapshot, record LeaderElectionRecord, annotations map[string]string) (Snapshot, error) {
	return l.access().write(ctx, base, record, annotations)
}

// Annotate implements Lock.
func (l *LeaseLock) Annotate(ctx context.Context, base Snapshot, annotations map[string]string) (Snapshot, error) {
	return l.access().annotate(ctx, base, annotations)
}

// DryRun implements Lock.
func (l *LeaseLock) DryRun(ctx context.Context, base Snapshot, record LeaderElectionRecord, annotations map[string]string) error {
	return l.access().dryRun(ctx, base, record, annotations)
}

// Subscribe implements Lock. If Shared is set, the subscription may use the watch of the namespace.
func (l *LeaseLock) Subscribe(ctx context.Context, wake func()) Subscription {
	return l.access().watched().subscribe(ctx, l.Shared, wake)
}

// Get returns the record and its bytes. The error is NotFound if the Lease does not exist, and wraps ErrUnreadable
// if its record cannot be read. For a Lease without a record it returns a zero record, nil bytes and no error.
func (l *LeaseLock) Get(ctx context.Context) (*LeaderElectionRecord, []byte, error) {
	return l.access().getRecord(ctx)
}

// Create creates the Lease. If it exists, the error is AlreadyExists and IsConflict reports true.
func (l *LeaseLock) Create(ctx context.Context, ler LeaderElectionRecord) error {
	return l.access().writeRecord(ctx, Snapshot{}, ler)
}

// Update replaces the record of the Lease that the last Get, Create or Update returned.
func (l *LeaseLock) Update(ctx context.Context, ler LeaderElectionRecord) error {
	return l.access().updateRecord(ctx, ler)
}

// RecordEvent implements Interface.
func (l *LeaseLock) RecordEvent(s string) { l.access().recordEvent(corev1.EventTypeNormal, s) }

// RecordWarning implements Lock.
func (l *LeaseLock) RecordWarning(s string) { l.access().recordEvent(corev1.EventTypeWarning, s) }

// Identity returns the identity of the candidate.
func (l *LeaseLock) Identity() string { return l.LockConfig.Identity }

// Key returns the rank of the candidate.
func (l *LeaseLock) Key() string { return l.LockConfig.Key }

// Describe returns "namespace/name".
func (l *LeaseLock) Describe() string { return describe(&l.LeaseMeta) }
