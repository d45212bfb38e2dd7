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
)

const (
	// LeaderElectionRecordAnnotationKey is the annotation of a ConfigMap lock that
	// carries the record as JSON. client-go and istiod use the same key.
	LeaderElectionRecordAnnotationKey = "control-plane.alpha.kubernetes.io/leader"
	// LeaseHolderKey is the annotation of a Lease lock that carries the holder's
	// key, for which a Lease has no field. It is absent when the key is empty.
	LeaseHolderKey = "leader.istio.io/holder-key"
)

// The annotations that this project adds to a lock object. Other electors carry
// them through their updates unread, so a reader believes none without its guard.
const (
	// MarkerAnnotation: "v1 <identity> <leaderTransitions>", then " handover" if the leader
	// can hand over, then " unfit" if it would rather not lead.
	MarkerAnnotation = "incumbent.dev/leader"
	// HandoverRequestAnnotation holds a challenger's request as JSON.
	HandoverRequestAnnotation = "incumbent.dev/handover-request"
	// NominatedAnnotation names a candidate that another process wrote in as holder.
	NominatedAnnotation = "incumbent.dev/nominated"
	// HoldAnnotation holds an operator's transfer or pause as JSON.
	HoldAnnotation = "incumbent.dev/hold"
	// MultiLockAnnotation: "v1 <identity> <leaderTransitions>", then the other object's
	// UID if there is one. The holder leads only while it stands in both objects of a
	// MultiLock.
	MultiLockAnnotation = "incumbent.dev/multilock"
)

// What a coordinator writes on a Lease where its spec cannot carry it: without the feature CoordinatedLeaderElection
// an API server drops spec.strategy and spec.preferredHolder. They are none of a Snapshot's notes,
// and stay through the writes of electors.
const (
	// StrategyAnnotation stands for spec.strategy.
	StrategyAnnotation = "incumbent.dev/strategy"
	// PreferredHolderAnnotation stands for spec.preferredHolder.
	PreferredHolderAnnotation = "incumbent.dev/preferred-holder"
)

// LeaderElectionRecord is who holds the lock, as stored. Its times come from the
// writer's clock: compare them for equality with other records, never with a
// local clock.
type LeaderElectionRecord struct {
	HolderIdentity       string      `json:"holderIdentity"`
	HolderKey            string      `json:"holderKey"`
	LeaseDurationSeconds int         `json:"leaseDurationSeconds"`
	AcquireTime          metav1.Time `json:"acquireTime"`
	RenewTime            metav1.Time `json:"renewTime"`
	LeaderTransitions    int         `json:"leaderTransitions"`
}

// EventRecorder writes a Kubernetes Event about the lock object.
type EventRecorder interface {
	Eventf(obj runtime.Object, eventType, reason, message string, args ...any)
}

// ResourceLockConfig describes the candidate to a lock of any kind.
type ResourceLockConfig struct {
	// Identity is the candidate's name, unique among live processes.
	Identity string
	// Key is the candidate's rank as written into the lock.
	Key string
	// EventRecorder is optional.
	EventRecorder EventRecorder
}

// Interface is the least that an elector needs of a lock. One with no more than
// this works; the elector polls it.
type Interface interface {
	// Get returns the record and the bytes by which a change of it shows.
	Get(ctx context.Context) (*LeaderElectionRecord, []byte, error)
	// Create makes the lock object; it fails when there is one.
	Create(ctx context.Context, ler LeaderElectionRecord) error
	// Update replaces the record of the object last read or written. It fails with
	// a conflict when the object has changed since.
	Update(ctx context.Context, ler LeaderElectionRecord) error
	RecordEvent(s string)
	Identity() string
	Key() string
	// Describe names the lock in errors and logs.
	Describe() string
}

// Warning is a lock whose Events can be of type Warning.
type Warning interface {
	// RecordWarning is RecordEvent for problems that an operator should look into.
	RecordWarning(s string)
}

// Snapshot is the lock object as one answer of its store showed it. It is
// immutable: readers share its maps and its object.
type Snapshot struct {
	// Exists is false when there is no such object; everything below, except a
	// ResourceVersion that a deletion came with, is then empty.
	Exists bool
	UID    types.UID
	// ResourceVersion is the object's version in its store: a decimal number that
	// grows with each write. Of a deletion seen by a watch it is the deletion's. Of a
	// MultiLock it and the UID are the secondary's, by which a fence goes.
	ResourceVersion string
	// Record is the decoded record; zero when there is none or it is unreadable.
	Record LeaderElectionRecord
	// Raw is the record's bytes as stored (ConfigMap) or as they would be (Lease,
	// with the microseconds of its times); nil when the object carries no record at
	// all. Equal bytes are an unchanged record.
	Raw []byte
	// Unreadable says why the record could not be decoded or believed; it wraps
	// ErrUnreadable.
	Unreadable error
	// Notes are the object's annotations with the prefix "incumbent.dev/", except
	// StrategyAnnotation and PreferredHolderAnnotation.
	Annotations map[string]string
	// Strategy is the one by which a coordinator chooses who holds the Lease; empty: none does.
	Strategy string
	// PreferredHolder is the candidate that the coordinator wants in the holder's place; empty: none.
	PreferredHolder string
	// Object is the whole object without managedFields, to write back what others put
	// there; of a MultiLock it is a *Pair.
	Object runtime.Object
	// Parts are the two objects of a MultiLock, the primary first.
	Parts [2]Part
	// Floor is the most transitions that an object of a MultiLock counts.
	Floor int
}

// Base returns the part of the Snapshot that Write and Annotate need of their base, for
// callers that keep it from write to write. Of a Lease or a ConfigMap that is all but Raw and
// Notes, which the object contains anyway; of any other lock it is the whole Snapshot.
func (s Snapshot) Base() Snapshot {
	switch s.Object.(type) {
	case *coordinationv1.Lease, *corev1.ConfigMap:
		s.Raw, s.Annotations = nil, nil
	}
	return s
}

// Versioned is a lock whose writes say on which state they were decided. Every
// lock of this package is one.
type Versioned interface {
	Interface
	// Read asks the store. An absent object is an answer (Exists is false), not an error.
	Read(ctx context.Context) (Snapshot, error)
	// Write stores the record and exactly these notes on the object that base
	// shows, or creates the object when base does not exist. All else on the object
	// stays. It returns what is stored now. An error that IsConflict reports means
	// that the store has moved on and nothing was written, one that IsRefused reports
	// that nothing was; any other error leaves open whether the write took place. base
	// may be a Snapshot's Base.
	Write(ctx context.Context, base Snapshot, record LeaderElectionRecord, notes map[string]string) (Snapshot, error)
}

// Annotated is a lock beside whose record others than its holder can write notes: a
// challenger's request, an operator's order.
type Annotated interface {
	// Annotate sets exactly these notes on the object that base shows and leaves the
	// record as it is stored, to the byte. It answers as Versioned.Write does.
	Annotate(ctx context.Context, base Snapshot, notes map[string]string) (Snapshot, error)
}

// Watchable is a lock whose changes can be followed.
type Watchable interface {
	// Watch follows the one lock object until ctx ends or the connection does.
	// from is a resourceVersion to resume after; "" starts with the present state.
	// It calls up once, when the server has accepted the watch, and seen for each
	// change in order, from one goroutine, never after it has returned. It returns
	// the resourceVersion to resume from ("" when that is not possible, e.g. 410
	// Gone) and why it ended; a nil error is an ordinary end: the server's time
	// limit, a closed connection, or the end of ctx.
	//
	// Three things a watch does not show. An absent object shows as nothing at all:
	// whoever starts from "" Reads as well, or a deletion in between goes unseen. A
	// version from before an etcd was restored from a backup may lie in the future:
	// the watch is accepted and silent, and whoever Reads an older version than it
	// resumed from starts again from "". And a connection that is dead, but was not
	// closed, looks like a lock that nobody renews.
	Watch(ctx context.Context, from string, up func(), seen func(Snapshot)) (resume string, err error)
}

// ErrConflict is wrapped by errors of Write that mean: the store has moved on,
// nothing was written, read again. That holds for a request that is sent once:
// give locks a client that does not send again by itself (see ClientConfig).
var ErrConflict = errors.New("the lock has changed since it was read")

// IsConflict reports whether err says for sure that nothing was written because
// the lock object is not the one the write was decided on.
func IsConflict(err error) bool { return errors.Is(err, ErrConflict) }

// errInPart is wrapped by errors of a write that has changed one of two objects.
var errInPart = errors.New("a part of the write may have been stored")

// IsRefused reports whether err says for sure that the API server did nothing, and will refuse
// the same request again until something else changes: a permission, a quota, a policy, a
// namespace that is missing or being deleted, too many requests. It is false for conflicts and
// for nil. As with ErrConflict, this is sure only for a request that is sent once.
func IsRefused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || errors.Is(err, ErrConflict) || errors.Is(err, errInPart) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusRequestTimeout, http.StatusConflict:
		return false
	default:
		return code >= 400 && code < 500
	}
}
