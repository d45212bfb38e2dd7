package locktest

import (
	"errors"
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// allAnnotations returns all annotations that a write may remove.
func allAnnotations() map[string]string {
	return map[string]string{
		record.MarkerAnnotation:          "v1 pod-a 1 handover",
		record.HandoverRequestAnnotation: `{"identity":"pod-b"}`,
		record.NominatedAnnotation:       "pod-b",
		record.HoldAnnotation:            `{}`,
	}
}

const laterAnnotation = "incumbent.dev/of-a-later-version"

// fineGrained adds microseconds to the renewTime of a Lease, as peers write it.
func fineGrained(obj apiserver.Object) {
	if lease, ok := obj.(*coordinationv1.Lease); ok && lease.Spec.RenewTime != nil {
		lease.Spec.RenewTime.Time = lease.Spec.RenewTime.Add(123456 * time.Microsecond)
	}
}

// decorate adds everything that other writers may add to a lock object.
func (t *trial) decorate(obj apiserver.Object) {
	owner := t.Owner
	if owner.UID == "" {
		owner = metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "00000000-0000-4000-8000-00000000000a"}
	}
	obj.SetLabels(map[string]string{"example.com/team": "mesh"})
	annotate(obj, "example.com/theirs", "kept")
	annotate(obj, laterAnnotation, "kept too")
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

// undecorated returns the object without the parts that a write changes.
func undecorated(snap k8sresourcelock.Snapshot) apiserver.Object {
	obj := snap.Object.DeepCopyObject().(apiserver.Object)
	obj.SetResourceVersion("")
	obj.SetGeneration(0)
	annotations := maps.Clone(obj.GetAnnotations())
	for k := range allAnnotations() {
		delete(annotations, k)
	}
	delete(annotations, k8sresourcelock.LeaderElectionRecordAnnotationKey)
	delete(annotations, k8sresourcelock.LeaseHolderKey)
	obj.SetAnnotations(annotations)
	if lease, ok := obj.(*coordinationv1.Lease); ok {
		lease.Spec = coordinationv1.LeaseSpec{Strategy: lease.Spec.Strategy, PreferredHolder: lease.Spec.PreferredHolder}
	}
	return obj
}

var foreignChecks = []check{
	{"write preserves content of others", func(t *trial) {
		a := t.Lock("pod-a", "stable")
		t.acquire(a)
		t.Mutate(t.decorate)
		t.Cleanup(func() { t.Mutate(func(obj apiserver.Object) { obj.SetFinalizers(nil) }) })
		base := t.must(a.Read(t.ctx))
		t.wantRecord(base, recordOf(a, 1))
		next := t.must(a.Write(t.ctx, base, recordOf(a, 2), base.Annotations))
		t.wantRecord(next, recordOf(a, 2))
		if was, is := undecorated(base), undecorated(next); !equality.Semantic.DeepEqual(was, is) {
			t.Errorf("was %+v\n is %+v", was, is)
		}
		if is := next.Object.(apiserver.Object); is.GetAnnotations()["example.com/theirs"] != "kept" || len(is.GetFinalizers()) == 0 {
			t.Errorf("annotations %v, finalizers %v", is.GetAnnotations(), is.GetFinalizers())
		}
	}},
	{"write sets annotations exactly", func(t *trial) {
		a := t.Lock("pod-a", "stable")
		base := t.must(a.Write(t.ctx, k8sresourcelock.Snapshot{}, recordOf(a, 1), allAnnotations()))
		t.wantAnnotations(base, allAnnotations())
		t.Mutate(func(obj apiserver.Object) { annotate(obj, laterAnnotation, "kept") })
		next := t.must(a.Write(t.ctx, t.must(a.Read(t.ctx)), recordOf(a, 2), map[string]string{record.MarkerAnnotation: "v1 pod-a 2"}))
		t.wantAnnotations(next, map[string]string{record.MarkerAnnotation: "v1 pod-a 2", laterAnnotation: "kept"})
		next = t.must(a.Write(t.ctx, next, recordOf(a, 3), nil))
		t.wantAnnotations(next, map[string]string{laterAnnotation: "kept"})
	}},
	{"annotate changes only annotations", func(t *trial) {
		a, b := t.Lock("pod-a", "stable"), t.Lock("pod-b", "canary")
		t.acquire(a)
		t.Mutate(fineGrained)
		base := t.must(b.Read(t.ctx))
		next := t.must(b.Annotate(t.ctx, base, allAnnotations()))
		t.wantAnnotations(next, allAnnotations())
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
	{"object without a record", func(t *trial) {
		a := t.Lock("pod-a", "stable")
		t.Mutate(func(obj apiserver.Object) { obj.SetLabels(map[string]string{"example.com/team": "mesh"}) })
		base := t.must(a.Read(t.ctx))
		if !base.Exists || base.Raw != nil || base.Unreadable != nil {
			t.Fatalf("exists %v, raw %q, unreadable %v", base.Exists, base.Raw, base.Unreadable)
		}
		next := t.must(a.Write(t.ctx, base, recordOf(a, 1), nil))
		t.wantRecord(next, recordOf(a, 1))
		if next.Object.(apiserver.Object).GetLabels()["example.com/team"] != "mesh" {
			t.Error("their label is gone")
		}
	}},
	{"unreadable record", func(t *trial) {
		a := t.Lock("pod-a", "stable")
		t.acquire(a)
		t.Mutate(corrupt)
		base := t.must(a.Read(t.ctx))
		if !errors.Is(base.Unreadable, k8sresourcelock.ErrUnreadable) || base.Raw == nil || base.Record != (k8sresourcelock.LeaderElectionRecord{}) {
			t.Fatalf("unreadable %v, raw %q, record %+v", base.Unreadable, base.Raw, base.Record)
		}
		t.wantRecord(t.must(a.Write(t.ctx, base, recordOf(a, 2), nil)), recordOf(a, 2))
	}},
}
