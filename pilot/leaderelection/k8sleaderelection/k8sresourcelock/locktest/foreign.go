package locktest

import (
	"encoding/json"
	"fmt"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Mutate changes the object as somebody with kubectl would: at once, unguarded. It
// creates the object when there is none. A change of nothing commits nothing.
func (s *Store) Mutate(change func(obj Object)) { s.mutate("", change) }

func (s *Store) mutate(by string, change func(obj Object)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	obj := s.blank()
	if s.object != nil {
		obj = clone(s.object)
	}
	change(obj)
	normalise(obj)
	if s.object != nil && sameContent(s.object, obj) {
		return
	}
	s.put(obj, by)
}

// Annotate sets one annotation, or removes it when value is "".
func (s *Store) Annotate(key, value string) {
	s.Mutate(func(obj Object) { annotate(obj, key, value) })
}

func annotate(obj Object, key, value string) {
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

// Put writes a record at once and unguarded, as an istiod would write it: our notes
// stay. by shows in the history. It creates the object when there is none.
func (s *Store) Put(by string, record k8sresourcelock.LeaderElectionRecord) {
	s.mutate(by, func(obj Object) { setRecord(obj, record) })
}

func setRecord(obj Object, r k8sresourcelock.LeaderElectionRecord) {
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

func corrupt(obj Object) {
	switch obj := obj.(type) {
	case *corev1.ConfigMap:
		annotate(obj, k8sresourcelock.LeaderElectionRecordAnnotationKey, `{"holderIdentity":"po`)
	case *coordinationv1.Lease:
		// The typed fields of a Lease can hold little that is invalid.
		obj.Spec.HolderIdentity = new(strings.Repeat("x", 4096))
	}
}

// Empty takes the record away and leaves the object.
func (s *Store) Empty() {
	s.Mutate(func(obj Object) {
		switch obj := obj.(type) {
		case *corev1.ConfigMap:
			delete(obj.Annotations, k8sresourcelock.LeaderElectionRecordAnnotationKey)
		case *coordinationv1.Lease:
			delete(obj.Annotations, k8sresourcelock.LeaseHolderKey)
			obj.Spec = coordinationv1.LeaseSpec{}
		}
	})
}

// Delete removes the object and reports whether there was one.
func (s *Store) Delete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.object == nil {
		return false
	}
	s.remove("")
	return true
}

// Backup is a state of the store to go back to.
type Backup struct {
	object  Object
	version uint64
}

// Backup keeps the present state.
func (s *Store) Backup() Backup {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Backup{s.object, s.version}
}

// Restore is an etcd restored from a backup: the object and the counter go back,
// versions are given out a second time, and every watch loses its connection. A
// watch resumed from a version of the lost future stays silent until it is reached.
func (s *Store) Restore(b Backup) {
	s.mu.Lock()
	s.object, s.version, s.floor = b.object, b.version, min(s.floor, b.version)
	for len(s.history) > 0 && s.history[len(s.history)-1].Version > b.version {
		s.history = s.history[:len(s.history)-1]
	}
	s.mu.Unlock()
	for w := range s.watching() {
		w.end(nil)
	}
}

// Revert writes the backup's content as a new version, as `kubectl replace --force`
// of an old file would. It fails when the backup has no object.
func (s *Store) Revert(b Backup) error {
	if b.object == nil {
		return fmt.Errorf("the backup of version %d holds no object", b.version)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(clone(b.object), "")
	return nil
}

// Compact forgets the history of watches: resuming from an earlier version is
// answered 410 Gone. History stays.
func (s *Store) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.floor = s.version
}

// Bookmark lets the counter grow, as writes to other objects do, and tells every
// watch of it.
func (s *Store) Bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	mark := s.blank()
	mark.SetResourceVersion(format(s.version))
	for w := range s.watchers {
		w.add(Event{Version: s.version, At: now(), kind: "BOOKMARK", object: mark})
	}
}
