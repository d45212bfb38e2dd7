package k8sresourcelock

import (
	"context"
	"errors"
	"net/http"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/apirequest"
)

// Annotations of lock objects.
const (
	// LeaderElectionRecordAnnotationKey is the annotation of a ConfigMap lock that contains the record as JSON.
	// client-go and istiod use the same key.
	LeaderElectionRecordAnnotationKey = "control-plane.alpha.kubernetes.io/leader"
	// LeaseHolderKey is the annotation of a Lease lock that contains the key of the holder. It is absent if the
	// key is empty.
	LeaseHolderKey = "leader.istio.io/holder-key"
)

// LeaderElectionRecord is the stored record of a lock. Its times come from the clock of the writer. Compare them
// with other records for equality only, never with a local clock.
type LeaderElectionRecord struct {
	// HolderIdentity is the identity of the holder. It is empty if the lock is free.
	HolderIdentity string `json:"holderIdentity"`
	// HolderKey is the rank of the holder: its revision, prefixed with "^" if the holder is remote.
	HolderKey string `json:"holderKey"`
	// LeaseDurationSeconds is the lease duration of the holder in seconds, or 1 if the lock was released.
	LeaseDurationSeconds int `json:"leaseDurationSeconds"`
	// AcquireTime is the time at which the holder acquired the lock.
	AcquireTime metav1.Time `json:"acquireTime"`
	// RenewTime is the time of the last renewal.
	RenewTime metav1.Time `json:"renewTime"`
	// LeaderTransitions counts the changes of the holder.
	LeaderTransitions int `json:"leaderTransitions"`
	// Strategy and PreferredHolder belong to the coordinator of a Lease. Get returns them. Create and Update write
	// them if they are not empty. They are not part of a ConfigMap record, and Snapshot has its own fields for them.
	Strategy        coordinationv1.CoordinatedLeaseStrategy `json:"-"`
	PreferredHolder string                                  `json:"-"`
}

// EventRecorder records Kubernetes Events about the lock object.
type EventRecorder interface {
	// Eventf records an Event about obj. eventType is Normal or Warning.
	Eventf(obj runtime.Object, eventType, reason, message string, args ...any)
}

// ResourceLockConfig describes the candidate that uses a lock.
type ResourceLockConfig struct {
	// Identity is the name of the candidate. It is unique among live processes.
	Identity string
	// Key is the rank of the candidate. It may be empty.
	Key string
	// EventRecorder receives Events about the lock. Optional.
	EventRecorder EventRecorder
}

// Interface is the minimum that an elector needs. The elector polls a lock that is not a Lock.
type Interface interface {
	// Get returns the record and its bytes. Different bytes mean that the record has changed.
	Get(ctx context.Context) (*LeaderElectionRecord, []byte, error)
	// Create creates the lock object. It returns an error if the object exists.
	Create(ctx context.Context, ler LeaderElectionRecord) error
	// Update replaces the record of the object that was last read or written. It returns a conflict error if the
	// object has changed since then.
	Update(ctx context.Context, ler LeaderElectionRecord) error
	// RecordEvent records an Event of type Normal about the lock object. The message is the identity and s. It may run at the same time
	// as another method.
	RecordEvent(s string)
	// Identity returns the identity of the candidate.
	Identity() string
	// Describe returns the name of the lock for errors and logs.
	Describe() string
}

// Keyed is implemented by locks whose candidates have a rank.
type Keyed interface {
	// Key returns the rank of the candidate. It may be empty.
	Key() string
}

// Snapshot is the state of the lock object in one response of the API server. It is immutable, because readers
// share its maps and its object.
type Snapshot struct {
	// Exists reports whether the object exists. If false, all other fields are empty. Only the Snapshot of a
	// deletion has a ResourceVersion.
	Exists bool
	// UID is the UID of the object.
	UID types.UID
	// ResourceVersion is the version of the object, a decimal number that grows with each write. For a deletion
	// seen by a watch it is the version of the deletion.
	ResourceVersion string
	// Record is the decoded record. It is zero if the object has no record or the record is unreadable.
	Record LeaderElectionRecord
	// Raw is the record as stored (ConfigMap) or encoded with microseconds (Lease). It is nil if the object has no
	// record. If the bytes are equal, the record has not changed.
	Raw []byte
	// Unreadable is the reason why the record could not be decoded or is invalid. It wraps ErrUnreadable.
	Unreadable error
	// Annotations are the annotations of the object with the prefix "incumbent.dev/", except those of a coordinator, which are
	// Strategy and PreferredHolder.
	Annotations map[string]string
	// Strategy is the coordinator's strategy for choosing the holder. It is empty if the election is not
	// coordinated.
	Strategy string
	// PreferredHolder is the candidate that the coordinator wants as the next holder. Optional.
	PreferredHolder string
	// ManagedFields are the managedFields of the object.
	ManagedFields []metav1.ManagedFieldsEntry
	// Object is the complete object without managedFields. A write sends it back, so that the content of other
	// writers is preserved.
	Object runtime.Object
}

// Base returns the part of the Snapshot that Write and Annotate need. A caller that keeps the base between writes
// saves memory with it. For a Lease or a ConfigMap it omits ManagedFields, and Raw and Annotations, which are also in
// Object. For other locks it returns the complete Snapshot.
func (s Snapshot) Base() Snapshot {
	switch s.Object.(type) {
	case *coordinationv1.Lease, *corev1.ConfigMap:
		s.Raw, s.Annotations, s.ManagedFields = nil, nil, nil
	}
	return s
}

// Lock is implemented by the locks of this package. Its writes have explicit bases, its annotations carry the requests of
// other candidates, and it can be watched.
type Lock interface {
	Interface
	Keyed
	// Validate returns all errors in the configuration of the lock. It sends no request.
	Validate() error
	// Read reads the lock object. If it does not exist, Exists is false and the error is nil.
	Read(ctx context.Context) (Snapshot, error)
	// Write stores the record and exactly these annotations on the object of base. If base does not exist, it
	// creates the object. The rest of the object is preserved. It returns the stored state.
	//
	// If IsConflict or IsRefused reports true for the error, nothing was written. After any other error the write
	// may have been stored. base may be the result of Base.
	Write(ctx context.Context, base Snapshot, record LeaderElectionRecord, annotations map[string]string) (Snapshot, error)
	// DryRun returns an error if the API server would reject the Write. Nothing is written.
	DryRun(ctx context.Context, base Snapshot, record LeaderElectionRecord, annotations map[string]string) error
	// Annotate stores exactly these annotations on the object of base. The record does not change. It returns what Write
	// returns. Candidates other than the holder use it, for example for a handover request.
	Annotate(ctx context.Context, base Snapshot, annotations map[string]string) (Snapshot, error)
	// Subscribe follows the lock. It does not block. It calls wake when there are events for Next after there were none,
	// possibly before it returns. wake must not block and must not call the Subscription. A nil Subscription means that the
	// lock cannot be watched: the caller must poll.
	Subscribe(ctx context.Context, wake func()) Subscription
	// RecordWarning records an Event of type Warning about the lock object.
	RecordWarning(s string)
}

var (
	// ErrConflict is wrapped by errors of Write if the object has changed since it was read. Nothing was written: read
	// again. This holds only if each request is sent once, as with a typed client of client-go or with ClientConfig.
	ErrConflict = errors.New("lock has changed since it was read")
	// ErrUnreadable is wrapped by Snapshot.Unreadable if the record cannot be decoded or is invalid.
	ErrUnreadable = errors.New("record of the lock is unreadable")
)

// IsConflict reports whether nothing was written because the object has changed since it was read.
func IsConflict(err error) bool { return errors.Is(err, ErrConflict) }

// IsRefused reports whether the API server rejected the request, wrote nothing, and will reject it again until
// something else changes: a permission, a quota, a policy, a missing or terminating namespace, the request rate.
// It is false for conflicts and for nil. As with ErrConflict, this holds only if each request is sent once.
func IsRefused(err error) bool {
	var status apierrors.APIStatus
	return apirequest.Rejected(err) && !errors.Is(err, ErrConflict) && errors.As(err, &status) && status.Status().Code != http.StatusConflict
}
