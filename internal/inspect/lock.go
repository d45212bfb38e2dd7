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

// The kinds of lock object, and Both for an election that is held in one of each together.
const (
	Lease     = "Lease"
	ConfigMap = "ConfigMap"
	Both      = "Both"
)

// Lock is one lock object as one answer of the API server showed it.
type Lock struct {
	Kind, Namespace, Name string
	Snapshot              k8sresourcelock.Snapshot
	// manager wrote the object last, by its managedFields.
	manager string
}

// Leases that are no election: the heartbeats of nodes, the API servers' own, and the members
// of elections of ours.
const (
	nodeLeases       = "kube-node-lease"
	apiServerLabel   = "apiserver.kubernetes.io/identity"
	componentLabel   = "k8s.io/component"
	apiServer        = "kube-apiserver"
	istiodManager    = "pilot-discovery"
	incumbentManager = "incumbent"
)

// FromLease is the lock that a Lease is; false for one that is none. Give it the object as the
// API server sent it, with managedFields.
func FromLease(lease *coordinationv1.Lease) (Lock, bool) {
	labels := lease.Labels
	_, member := labels[members.Label]
	_, server := labels[apiServerLabel]
	if lease.Namespace == nodeLeases || member || server || labels[componentLabel] == apiServer {
		return Lock{}, false
	}
	return Lock{
		Kind: Lease, Namespace: lease.Namespace, Name: lease.Name,
		Snapshot: k8sresourcelock.LeaseSnapshot(lease), manager: lastManager(lease.ManagedFields),
	}, true
}

// FromConfigMap is the lock that a ConfigMap is, by its metadata alone; false for one that
// carries no record.
func FromConfigMap(meta *metav1.ObjectMeta) (Lock, bool) {
	if _, ok := meta.Annotations[k8sresourcelock.LeaderElectionRecordAnnotationKey]; !ok {
		return Lock{}, false
	}
	return Lock{
		Kind: ConfigMap, Namespace: meta.Namespace, Name: meta.Name,
		Snapshot: k8sresourcelock.ConfigMapSnapshot(&corev1.ConfigMap{ObjectMeta: *meta}), manager: lastManager(meta.ManagedFields),
	}, true
}

func lastManager(entries []metav1.ManagedFieldsEntry) (name string) {
	var newest time.Time
	for _, e := range entries {
		if e.Time == nil || e.Time.Time.Before(newest) {
			continue
		}
		name, newest = e.Manager, e.Time.Time
	}
	return name
}

// program is the implementation of the holder's elector; empty where that is not known.
func (l Lock) program(leads bool) string {
	switch {
	case leads:
		return incumbentManager
	case strings.HasPrefix(l.manager, istiodManager):
		return "istiod"
	}
	return ""
}

// Liveness says whether a lock's holder is alive, as far as two looks at the lock tell.
type Liveness string

const (
	// Renewed: the holder has written the record in between, and is alive.
	Renewed Liveness = "renewed"
	// Silent: the record has stayed as it was for its whole lease, and counts as expired.
	Silent Liveness = "expired"
	// Undecided: it has stayed as it was, for less than its lease.
	Undecided Liveness = "unchanged"
	// Moved: another term has begun, the lock was given up, deleted or made anew.
	Moved Liveness = "moved"
)

// Compare says how a lock has changed between two looks. apart is the time between them, by the
// reader's own clock.
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
