package audit

import (
	"encoding/json"
	"strings"
	"time"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/members"
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
	// created is true if the write created the object, fresh if it began a term.
	created, fresh bool
}

// nominationSeconds is the lease duration of a coordinator's nomination.
const nominationSeconds = 5

// apiServerLabel marks the Leases of API servers, which are no locks.
const apiServerLabel = "apiserver.kubernetes.io/identity"

// mayBeLock reports whether the object can be a lock. The Leases of nodes are none.
func mayBeLock(t target) bool {
	return t.resource == "leases" && t.namespace != "kube-node-lease" || t.resource == "configmaps" || t.resource == "endpoints"
}

// recordOf returns the record of a written object. It returns false if the object is no lock. A ConfigMap or Endpoints
// without the annotation may have been a lock before, and counts as unreadable.
func recordOf(t target, created bool, o object) (r content, is bool) {
	annotations := o.Metadata.Annotations
	r.created = created
	if t.resource == "leases" {
		var spec struct {
			HolderIdentity       string `json:"holderIdentity"`
			LeaseTransitions     int    `json:"leaseTransitions"`
			LeaseDurationSeconds int    `json:"leaseDurationSeconds"`
			Strategy             string `json:"strategy"`
			AcquireTime          string `json:"acquireTime"`
			RenewTime            string `json:"renewTime"`
		}
		if o.Metadata.Labels[members.Label] != "" || o.Metadata.Labels[apiServerLabel] != "" || json.Unmarshal(o.Spec, &spec) != nil && len(o.Spec) > 0 {
			return r, false
		}
		r.readable = true
		r.holder = inspect.Pod(spec.HolderIdentity, t.name)
		r.key = annotations[locks.LeaseHolderKey]
		r.transitions = spec.LeaseTransitions
		r.lease = time.Duration(spec.LeaseDurationSeconds) * time.Second
		r.fresh = spec.AcquireTime == spec.RenewTime
		r.named = spec.Strategy+annotations[record.StrategyAnnotation] != "" && spec.LeaseDurationSeconds == nominationSeconds
		return r, true
	}
	var of locks.LeaderElectionRecord
	annotation, has := annotations[locks.LeaderElectionRecordAnnotationKey]
	if !has || json.Unmarshal([]byte(annotation), &of) != nil {
		return r, true
	}
	r.readable = true
	r.holder = of.HolderIdentity
	r.key = of.HolderKey
	r.transitions = of.LeaderTransitions
	r.lease = time.Duration(of.LeaseDurationSeconds) * time.Second
	r.fresh = of.AcquireTime.Equal(&of.RenewTime)
	return r, true
}

// podOf returns the pod of an identity: the identity without the UUID that client-go's users append.
func podOf(identity string) string {
	const uuid = len("_00000000-0000-0000-0000-000000000000")
	if n := len(identity) - uuid; n > 0 && identity[n] == '_' && strings.Count(identity[n:], "-") == 4 {
		return identity[:n]
	}
	return identity
}
