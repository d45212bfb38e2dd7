package audit

import (
	"encoding/json"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/record"
	locks "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Lock identifies a lock. Resource is leases, configmaps or endpoints.
type Lock struct {
	Resource  string `json:"resource"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

func (l Lock) String() string { return l.Resource + " " + l.Namespace + "/" + l.Name }

// content is the content of a lock.
type content struct {
	holder, key string
	transitions int
	lease       time.Duration
	// readable is false if the object has no record or an invalid one.
	readable bool
	// named is true for the nomination of a coordinator, which may run in the pod that it names.
	named bool
	// created is true if the write created the object, fresh if it began a term. nominated is true if the previous holder began it.
	created, fresh, nominated bool
}

// mayBeLock reports whether the object can be a lock. The Leases of nodes are none.
func mayBeLock(t target) bool {
	return t.resource == "leases" && t.namespace != "kube-node-lease" || t.resource == "configmaps" || t.resource == "endpoints"
}

// recordOf returns the record of a written object. It returns false if the object is no lock. A ConfigMap or Endpoints
// without the annotation may have been a lock before, and counts as unreadable.
func recordOf(t target, created bool, o object) (r content, is bool) {
	meta := metav1.ObjectMeta{Namespace: t.namespace, Name: t.name, Annotations: o.Metadata.Annotations, Labels: o.Metadata.Labels}
	r.created = created
	if t.resource != "leases" {
		snap := locks.ConfigMapSnapshot(&corev1.ConfigMap{ObjectMeta: meta})
		r.set(snap, snap.Raw != nil)
		return r, true
	}
	lease := &coordinationv1.Lease{ObjectMeta: meta}
	if json.Unmarshal(o.Spec, &lease.Spec) != nil && len(o.Spec) > 0 {
		return r, false
	}
	// The log has no managedFields, so the key of an earlier holder counts.
	lock, is := inspect.FromLease(lease)
	if !is {
		return r, false
	}
	snap := lock.Snapshot
	r.set(snap, true) // a Lease without a record is a free lock
	r.holder = inspect.Pod(r.holder, t.name)
	r.named = snap.Strategy != "" && snap.Record.LeaseDurationSeconds == record.NominationSeconds
	return r, true
}

// set sets what the record of the lock contains.
func (r *content) set(snap locks.Snapshot, has bool) {
	r.readable = has && snap.Unreadable == nil
	r.holder = snap.Record.HolderIdentity
	r.key = snap.Record.HolderKey
	r.transitions = snap.Record.LeaderTransitions
	r.lease = time.Duration(snap.Record.LeaseDurationSeconds) * time.Second
	r.fresh = r.readable && snap.Record.AcquireTime.Equal(&snap.Record.RenewTime)
	r.nominated = r.fresh && r.holder != "" && snap.Annotations[record.NominatedAnnotation] == r.holder
}

// podOf returns the pod of an identity: the identity without the UUID that client-go's users append.
func podOf(identity string) string {
	const uuid = len("_00000000-0000-0000-0000-000000000000")
	if n := len(identity) - uuid; n > 0 && identity[n] == '_' && strings.Count(identity[n:], "-") == 4 {
		return identity[:n]
	}
	return identity
}
