package locktest

import (
	"encoding/json"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Mutate changes or creates the object without a guard, as kubectl does. If nothing changes, nothing is stored.
func (s *Store) Mutate(change func(obj apiserver.Object)) { s.mutate("", change) }

func (s *Store) mutate(by string, change func(obj apiserver.Object)) {
	obj := s.blank()
	s.server.Edit(by, obj, func() { change(obj) })
}

// Annotate sets one annotation. An empty value removes it.
func (s *Store) Annotate(key, value string) {
	s.Mutate(func(obj apiserver.Object) { annotate(obj, key, value) })
}

func annotate(obj apiserver.Object, key, value string) {
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	if value == "" {
		delete(annotations, key)
	}
	obj.SetAnnotations(annotations)
}

// Put writes a record without a guard, as istiod does: annotations are preserved. It creates the object if it does
// not exist. by is the writer in the history.
func (s *Store) Put(by string, record k8sresourcelock.LeaderElectionRecord) {
	s.mutate(by, func(obj apiserver.Object) { setRecord(obj, record) })
}

func setRecord(obj apiserver.Object, r k8sresourcelock.LeaderElectionRecord) {
	switch obj := obj.(type) {
	case *corev1.ConfigMap:
		raw, err := json.Marshal(r)
		if err != nil {
			panic(err) // a test's own record, with a time that no JSON can carry
		}
		annotate(obj, k8sresourcelock.LeaderElectionRecordAnnotationKey, string(raw))
	case *coordinationv1.Lease:
		annotate(obj, k8sresourcelock.LeaseHolderKey, r.HolderKey)
		obj.Spec.HolderIdentity = &r.HolderIdentity
		obj.Spec.LeaseDurationSeconds = new(int32(r.LeaseDurationSeconds))
		obj.Spec.AcquireTime = &metav1.MicroTime{Time: r.AcquireTime.Time}
		obj.Spec.RenewTime = &metav1.MicroTime{Time: r.RenewTime.Time}
		obj.Spec.LeaseTransitions = new(int32(r.LeaderTransitions))
	}
}

// Corrupt makes the record unreadable.
func (s *Store) Corrupt() { s.Mutate(corrupt) }

func corrupt(obj apiserver.Object) {
	switch obj := obj.(type) {
	case *corev1.ConfigMap:
		annotate(obj, k8sresourcelock.LeaderElectionRecordAnnotationKey, `{"holderIdentity":"po`)
	case *coordinationv1.Lease:
		// The typed fields of a Lease can hold little that is invalid.
		obj.Spec.HolderIdentity = new(strings.Repeat("x", 4096))
	}
}

// Empty removes the record but not the object.
func (s *Store) Empty() {
	s.Mutate(func(obj apiserver.Object) {
		switch obj := obj.(type) {
		case *corev1.ConfigMap:
			delete(obj.Annotations, k8sresourcelock.LeaderElectionRecordAnnotationKey)
		case *coordinationv1.Lease:
			delete(obj.Annotations, k8sresourcelock.LeaseHolderKey)
			obj.Spec = coordinationv1.LeaseSpec{}
		}
	})
}
