package inspect

import (
	"bytes"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/members"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Kinds of lock.
const (
	Lease     = "Lease"
	ConfigMap = "ConfigMap"
)

// Lock is one version of a lock object.
type Lock struct {
	Kind, Namespace, Name string
	Snapshot              k8sresourcelock.Snapshot
	// At is the API server's time of the read. If zero, Of does not judge whether the lease expired.
	At time.Time
	// manager is the last writer of the record, by managedFields. written is the API server's time of its write, or zero.
	manager string
	written time.Time
	// finalizers are the finalizers of an object that is being deleted.
	finalizers []string
	// strategy is the strategy of the elector that saw the lock, for a lock without a strategy.
	strategy string
}

// Leases that are no election: heartbeats of nodes and of API servers, and members.
const (
	nodeLeases       = "kube-node-lease"
	apiServerLabel   = "apiserver.kubernetes.io/identity"
	componentLabel   = "k8s.io/component"
	apiServer        = "kube-apiserver"
	istiodManager    = "pilot-discovery"
	incumbentManager = "incumbent"
)

// FromLease returns the lock of a Lease, and false if the Lease is no election. The object needs its managedFields.
func FromLease(lease *coordinationv1.Lease) (Lock, bool) {
	labels := lease.Labels
	_, member := labels[members.Label]
	_, server := labels[apiServerLabel]
	if lease.Namespace == nodeLeases || member || server || labels[componentLabel] == apiServer {
		return Lock{}, false
	}
	return lockOf(Lease, &lease.ObjectMeta, "renewTime", k8sresourcelock.LeaseSnapshot(lease)), true
}

// lockOf returns the lock of an object. field is the managed field that a renewal writes.
func lockOf(kind string, meta *metav1.ObjectMeta, field string, snap k8sresourcelock.Snapshot) Lock {
	manager, written := k8sresourcelock.LastWriter(meta.ManagedFields, field)
	return Lock{
		Kind: kind, Namespace: meta.Namespace, Name: meta.Name, Snapshot: snap,
		manager: manager, written: written, finalizers: keeping(meta),
	}
}

// strategyInSpec reports whether the spec of a Lease has the strategy.
func strategyInSpec(s k8sresourcelock.Snapshot) bool {
	lease, ok := s.Object.(*coordinationv1.Lease)
	return ok && lease.Spec.Strategy != nil && *lease.Spec.Strategy != ""
}

// FromConfigMap returns the lock of a ConfigMap, and false if it has no record.
func FromConfigMap(meta *metav1.ObjectMeta) (Lock, bool) {
	if _, ok := meta.Annotations[k8sresourcelock.LeaderElectionRecordAnnotationKey]; !ok {
		return Lock{}, false
	}
	snap := k8sresourcelock.ConfigMapSnapshot(&corev1.ConfigMap{ObjectMeta: *meta})
	return lockOf(ConfigMap, meta, k8sresourcelock.LeaderElectionRecordAnnotationKey, snap), true
}

// keeping returns the finalizers that delay the deletion of an object. It returns nil if the object is not being deleted.
func keeping(meta *metav1.ObjectMeta) []string {
	if meta.DeletionTimestamp == nil {
		return nil
	}
	return meta.Finalizers
}

// program returns the program of the holder, or "" if it is unknown.
func (l Lock) program(leads bool) string {
	switch {
	case leads:
		return incumbentManager
	case strings.HasPrefix(l.manager, istiodManager):
		return "istiod"
	}
	return ""
}

// Liveness is the result of comparing two reads of a lock.
type Liveness string

const (
	// Renewed means that the holder wrote the record, so it is alive.
	Renewed Liveness = "renewed"
	// Silent means that the record was unchanged for its lease, so it expired.
	Silent Liveness = "expired"
	// Undecided means that the record was unchanged for less than its lease.
	Undecided Liveness = "unchanged"
	// Moved means that a new term began, or that the lock was released, deleted or recreated.
	Moved Liveness = "moved"
)

// Compare compares two reads of a lock. apart is the time between them.
func Compare(before, after Lock, apart time.Duration) Liveness {
	a, b := before.Snapshot, after.Snapshot
	switch {
	case a.UID != b.UID || a.Record.HolderIdentity != b.Record.HolderIdentity || a.Record.LeaderTransitions != b.Record.LeaderTransitions:
		return Moved
	case !bytes.Equal(a.Raw, b.Raw):
		return Renewed
	case apart >= time.Duration(a.Record.LeaseDurationSeconds)*time.Second:
		return Silent
	}
	return Undecided
}
