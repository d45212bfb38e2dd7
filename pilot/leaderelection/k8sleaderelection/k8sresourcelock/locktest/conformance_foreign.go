package locktest

import (
	"errors"
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// allNotes are the notes that a lock may remove.
func allNotes() map[string]string {
	return map[string]string{
		k8sresourcelock.MarkerAnnotation:          "v1 pod-a 1 handover",
		k8sresourcelock.HandoverRequestAnnotation: `{"identity":"pod-b"}`,
		k8sresourcelock.NominatedAnnotation:       "pod-b",
		k8sresourcelock.HoldAnnotation:            `{}`,
	}
}

const laterNote = "incumbent.dev/of-a-later-version"

// fineGrained gives a Lease's times the microseconds that only peers write.
func fineGrained(obj Object) {
	if lease, ok := obj.(*coordinationv1.Lease); ok && lease.Spec.RenewTime != nil {
		lease.Spec.RenewTime.Time = lease.Spec.RenewTime.Add(123456 * time.Microsecond)
	}
}

// decorate puts onto a lock object all that others may put there.
func (t *trial) decorate(obj Object) {
	owner := t.Owner
	if owner.UID == "" {
		owner = metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "00000000-0000-4000-8000-00000000000a"}
	}
	obj.SetLabels(map[string]string{"example.com/team": "mesh"})
	annotate(obj, "example.com/theirs", "kept")
	annotate(obj, laterNote, "kept too")
	obj.SetFinalizers(append(obj.GetFinalizers(), "example.com/last-word"))
	obj.SetOwnerReferences([]metav1.OwnerReference{owner})
	switch obj := obj.(type) {
	case *corev1.ConfigMap:
		obj.Data = map[string]string{"notes.txt": "theirs"}
		obj.BinaryData = map[string][]byte{"blob": {0, 1, 2}}
	case *coordinationv1.Lease:
		obj.Spec.Strategy = new(coordinationv1.OldestEmulationVersion)
		obj.Spec.PreferredHolder = new("pod-z")
	}
}

// undecorated are a lock's objects without what a write of ours decides.
func undecorated(snap k8sresourcelock.Snapshot) (all []Object) {
	for _, obj := range objects(snap) {
		all = append(all, undecoratedObject(clone(obj)))
	}
	return all
}

func undecoratedObject(obj Object) Object {
	normalise(obj)
	obj.SetResourceVersion("")
	obj.SetGeneration(0)
	annotations := maps.Clone(obj.GetAnnotations())
	for k := range allNotes() {
		delete(annotations, k)
	}
	delete(annotations, k8sresourcelock.LeaderElectionRecordAnnotationKey)
	delete(annotations, k8sresourcelock.LeaseHolderKey)
	delete(annotations, k8sresourcelock.MultiLockAnnotation)
	obj.SetAnnotations(annotations)
	if lease, ok := obj.(*coordinationv1.Lease); ok {
		lease.Spec = coordinationv1.LeaseSpec{Strategy: lease.Spec.Strategy, PreferredHolder: lease.Spec.PreferredHolder}
	}
	return obj
}

var foreignChecks = []check{
	{"what others put on the lock survives", func(t *trial) {
		a := t.Lock("pod-a", "stable")
		t.acquire(a)
		t.Mutate(t.decorate)
		t.Cleanup(func() { t.Mutate(func(obj Object) { obj.SetFinalizers(nil) }) })
		base := t.must(a.Read(t.ctx))
		t.wantRecord(base, record(a, 1))
		next := t.must(a.Write(t.ctx, base, record(a, 2), base.Annotations))
		t.wantRecord(next, record(a, 2))
		if was, is := undecorated(base), undecorated(next); !apiequality.Semantic.DeepEqual(was, is) {
			t.Errorf("was %+v\n is %+v", was, is)
		}
		for _, is := range objects(next) {
			if is.GetAnnotations()["example.com/theirs"] != "kept" || len(is.GetFinalizers()) == 0 {
				t.Errorf("annotations %v, finalizers %v", is.GetAnnotations(), is.GetFinalizers())
			}
		}
	}},
	{"notes are set exactly, a later version's stay", func(t *trial) {
		a := t.Lock("pod-a", "stable")
		base := t.must(a.Write(t.ctx, k8sresourcelock.Snapshot{}, record(a, 1), allNotes()))
		t.wantNotes(base, allNotes())
		t.Mutate(func(obj Object) { annotate(obj, laterNote, "kept") })
		next := t.must(a.Write(t.ctx, t.must(a.Read(t.ctx)), record(a, 2), map[string]string{k8sresourcelock.MarkerAnnotation: "v1 pod-a 2"}))
		t.wantNotes(next, map[string]string{k8sresourcelock.MarkerAnnotation: "v1 pod-a 2", laterNote: "kept"})
		next = t.must(a.Write(t.ctx, next, record(a, 3), nil))
		t.wantNotes(next, map[string]string{laterNote: "kept"})
	}},
	{"notes alone change nothing else", func(t *trial) {
		a, b := t.Lock("pod-a", "stable"), t.Lock("pod-b", "canary")
		t.acquire(a)
		t.Mutate(fineGrained)
		base := t.must(b.Read(t.ctx))
		next := t.must(b.Annotate(t.ctx, base, allNotes()))
		t.wantNotes(next, allNotes())
		if string(next.Raw) != string(base.Raw) {
			t.Errorf("the record was %s and is %s", base.Raw, next.Raw)
		}
		if _, err := b.Annotate(t.ctx, base, nil); !k8sresourcelock.IsConflict(err) {
			t.Errorf("a second write on the same base: %v", err)
		}
		if _, err := b.Annotate(t.ctx, k8sresourcelock.Snapshot{}, nil); err == nil {
			t.Error("notes were written on no object")
		}
	}},
	{"an object without a record is told from no object", func(t *trial) {
		a := t.Lock("pod-a", "stable")
		t.Mutate(func(obj Object) { obj.SetLabels(map[string]string{"example.com/team": "mesh"}) })
		base := t.must(a.Read(t.ctx))
		if !base.Exists || base.Raw != nil || base.Unreadable != nil {
			t.Fatalf("exists %v, raw %q, unreadable %v", base.Exists, base.Raw, base.Unreadable)
		}
		next := t.must(a.Write(t.ctx, base, record(a, 1), nil))
		t.wantRecord(next, record(a, 1))
		for _, is := range objects(next) {
			if is.GetLabels()["example.com/team"] != "mesh" {
				t.Error("their label is gone")
			}
		}
	}},
	{"an unreadable record is reported and can be replaced", func(t *trial) {
		a := t.Lock("pod-a", "stable")
		t.acquire(a)
		t.Mutate(corrupt)
		base := t.must(a.Read(t.ctx))
		if !errors.Is(base.Unreadable, k8sresourcelock.ErrUnreadable) || base.Raw == nil || base.Record != (k8sresourcelock.LeaderElectionRecord{}) {
			t.Fatalf("unreadable %v, raw %q, record %+v", base.Unreadable, base.Raw, base.Record)
		}
		t.wantRecord(t.must(a.Write(t.ctx, base, record(a, 2), nil)), record(a, 2))
	}},
}
