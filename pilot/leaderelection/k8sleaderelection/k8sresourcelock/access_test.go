package k8sresourcelock

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/record"
)

// shownAs returns a base with these annotations.
func shownAs(annotations map[string]string) Snapshot {
	cm := configMap("istio-leader", "7")
	cm.UID, cm.Annotations = "u", annotations
	return ConfigMapSnapshot(cm)
}

func TestWrite_GuardedByBase(t *testing.T) {
	store := &unversionedStore{object: configMap("istio-leader", "7")}
	base := shownAs(map[string]string{LeaderElectionRecordAnnotationKey: goldenJSON, record.MarkerAnnotation: "m"})
	if base.Raw == nil || base.Annotations == nil {
		t.Fatalf("a base of nothing: %+v", base)
	}
	base.UID, base.ResourceVersion = "v", "8"
	base.Object.(*corev1.ConfigMap).ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	for range 2 {
		if _, err := lockOn(store).Write(t.Context(), base, golden, nil); err != nil {
			t.Fatal(err)
		}
		if got := store.object; got.UID != "v" || got.ResourceVersion != "8" || got.ManagedFields != nil {
			t.Errorf("sent %+v", got.ObjectMeta)
		}
		base = base.Base()
	}
	if base.Raw != nil || base.Annotations != nil || base.Object == nil {
		t.Errorf("a base keeps %+v", base)
	}
	other := Snapshot{Raw: []byte("{}"), Annotations: map[string]string{"a": "b"}, Object: &corev1.Secret{}}
	if kept := other.Base(); kept.Raw == nil || kept.Annotations == nil {
		t.Errorf("of an object that is not the API server's a base keeps %+v", kept)
	}
}

// EventLog records the objects and messages of Events.
type EventLog struct {
	About []metav1.Object
	Texts []string
}

// Eventf implements EventRecorder.
func (e *EventLog) Eventf(obj runtime.Object, kind, _, message string, args ...any) {
	e.About = append(e.About, obj.(metav1.Object))
	e.Texts = append(e.Texts, kind+" "+obj.GetObjectKind().GroupVersionKind().String()+": "+fmt.Sprintf(message, args...))
}

// An Event refers to the last known state of the object.
func TestRecordEvent_Object(t *testing.T) {
	log := &EventLog{}
	seen := shownAs(nil)
	l := lockOn(&unversionedStore{object: seen.Object.(*corev1.ConfigMap)})
	l.LockConfig.EventRecorder = log
	version := func() string {
		l.RecordEvent("is 100% leader")
		about := log.About[len(log.About)-1]
		return string(about.GetUID()) + "@" + about.GetResourceVersion()
	}
	if got := version(); got != "@" {
		t.Errorf("before anything was seen: %s", got)
	}
	if _, err := l.Read(t.Context()); err != nil || version() != "u@7" {
		t.Errorf("after a read: %s, error %v", version(), err)
	}
	seen.ResourceVersion = "9"
	if _, err := l.Annotate(t.Context(), seen, nil); err != nil || version() != "u@9" {
		t.Errorf("after notes: %s, error %v", version(), err)
	}
	seen.ResourceVersion = "11"
	if _, err := l.Write(t.Context(), seen, golden, nil); err != nil || version() != "u@11" {
		t.Errorf("after a write: %s, error %v", version(), err)
	}
	want := "Normal /v1, Kind=ConfigMap: pod-a is 100% leader"
	if about := log.About[0]; log.Texts[0] != want || about.GetNamespace() != "istio-system" || about.GetName() != "istio-leader" {
		t.Errorf("%q about %s/%s, want %q", log.Texts[0], about.GetNamespace(), about.GetName(), want)
	}
}

// Without a client, an object or a valid base, nothing is sent.
func TestAnnotate_Refused(t *testing.T) {
	store := &unversionedStore{}
	of := func(object runtime.Object) Snapshot {
		return Snapshot{Exists: true, UID: "u", ResourceVersion: "7", Object: object}
	}
	for want, c := range map[string]struct {
		lock        Lock
		base        Snapshot
		annotations map[string]string
	}{
		"no Client":                {&ConfigMapLock{}, shownAs(nil), nil},
		"example.com/x":            {lockOn(store), shownAs(nil), map[string]string{"example.com/x": "y"}},
		"does not exist":           {lockOn(store), Snapshot{}, nil},
		"the write is a *v1.Lease": {lockOn(store), of(&coordinationv1.Lease{}), nil},
		`and UID ""`:               {lockOn(store), Snapshot{Exists: true, ResourceVersion: "7", Object: shownAs(nil).Object}, nil},
	} {
		if _, err := c.lock.Annotate(t.Context(), c.base, c.annotations); err == nil || !strings.Contains(err.Error(), ": annotate: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if store.n > 0 {
		t.Errorf("%d requests were sent", store.n)
	}
	excessive, lease := termed(math.MaxInt32+1), leaseLock(&Shared{Client: newLeaseServer()}, "a") // which cannot create
	if _, err := lease.Write(t.Context(), Snapshot{}, excessive, nil); err == nil || !strings.Contains(err.Error(), "create: leaderTransitions") {
		t.Errorf("a record that does not fit: error %v", err)
	}
	none := &ConfigMapLock{}
	_, errRead := none.Read(t.Context())
	_, errWrite := none.Write(t.Context(), shownAs(nil), golden, nil)
	for _, err := range []error{errRead, errWrite} {
		if err == nil || !strings.Contains(err.Error(), "no Client") {
			t.Errorf("error %v, want the missing client", err)
		}
	}
}

// A created object has the labels, annotations and owners of the lock.
func TestWrite_Create(t *testing.T) {
	store := &unversionedStore{}
	l := lockOn(store)
	l.ConfigMapMeta.Labels = map[string]string{"app": "pilot"}
	l.ConfigMapMeta.Annotations = map[string]string{"example.com/x": "y", record.HoldAnnotation: "from the meta"}
	l.ConfigMapMeta.OwnerReferences = []metav1.OwnerReference{{Kind: "Deployment", Name: "pilot"}}
	l.ConfigMapMeta.ResourceVersion = "3"
	if _, err := l.Write(t.Context(), Snapshot{}, golden, map[string]string{record.MarkerAnnotation: "v1 pod-a 3"}); err != nil {
		t.Fatal(err)
	}
	got := store.object
	if got.Labels["app"] != "pilot" || got.OwnerReferences[0].Name != "pilot" || got.ResourceVersion != "" {
		t.Errorf("sent %+v", got)
	}
	if len(got.Annotations) != 3 || got.Annotations["example.com/x"] != "y" || got.Annotations[record.MarkerAnnotation] == "" {
		t.Errorf("annotations %v", got.Annotations)
	}
	if len(l.ConfigMapMeta.Annotations) != 2 {
		t.Errorf("the meta was changed: %v", l.ConfigMapMeta.Annotations)
	}
	// Only an existing object is a conflict. A missing namespace is not.
	if _, err := l.Write(t.Context(), Snapshot{}, golden, nil); !IsConflict(err) {
		t.Errorf("second create: %v", err)
	}
	store.failNext(1, apierrors.NewNotFound(corev1.Resource("namespaces"), "istio-system"))
	if _, err := l.Write(t.Context(), Snapshot{}, golden, nil); !apierrors.IsNotFound(err) || IsConflict(err) {
		t.Errorf("create in a missing namespace: %v", err)
	}
	// The error names the lock and keeps the reason of the API server.
	store.failNext(1, apierrors.NewForbidden(configMaps.resource, "istio-leader", errors.New("no right")))
	if _, err := l.Read(t.Context()); !apierrors.IsForbidden(err) || IsConflict(err) || !strings.HasPrefix(err.Error(), "configmap istio-system/istio-leader: get: ") || !strings.HasSuffix(err.Error(), "no right") {
		t.Errorf("read without permission: %v", err)
	}
}

// Each field of a Lease alone is a record.
func TestLeaseSnapshot_SingleField(t *testing.T) {
	for name, spec := range map[string]coordinationv1.LeaseSpec{
		"holder":      {HolderIdentity: new("")},
		"duration":    {LeaseDurationSeconds: new(int32(0))},
		"acquired":    {AcquireTime: micro("2026-01-02T03:04:05Z")},
		"renewed":     {RenewTime: micro("2026-01-02T03:04:05Z")},
		"transitions": {LeaseTransitions: new(int32(0))},
	} {
		if snap := LeaseSnapshot(&coordinationv1.Lease{Spec: spec}); snap.Raw == nil || snap.Unreadable != nil {
			t.Errorf("%s alone is no record: %+v", name, snap)
		}
	}
	if snap := LeaseSnapshot(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{UID: types.UID("u")}, Spec: coordinationv1.LeaseSpec{PreferredHolder: new("z")}}); snap.Raw != nil {
		t.Errorf("a coordinator's field is no record: %s", snap.Raw)
	}
}

func TestCheckRecord_Limits(t *testing.T) {
	record := func(change func(*LeaderElectionRecord)) LeaderElectionRecord {
		r := golden
		change(&r)
		return r
	}
	type rec = LeaderElectionRecord
	for name, c := range map[string]struct {
		record rec
		fits   bool
	}{
		"identity":        {record(func(r *rec) { r.HolderIdentity = strings.Repeat("x", maxName) }), true},
		"key":             {record(func(r *rec) { r.HolderKey = strings.Repeat("x", maxName) }), true},
		"longer key":      {record(func(r *rec) { r.HolderKey = strings.Repeat("x", maxName+1) }), false},
		"year 0":          {record(func(r *rec) { r.AcquireTime = at("0000-01-01T00:00:00Z") }), true},
		"year 9999":       {record(func(r *rec) { r.AcquireTime = at("9999-12-31T23:59:59Z") }), true},
		"before year 0":   {record(func(r *rec) { r.AcquireTime = at("0000-01-01T00:00:00+01:00") }), false},
		"after year 9999": {record(func(r *rec) { r.AcquireTime = at("9999-12-31T23:59:59-01:00") }), false},
		"renewed before":  {record(func(r *rec) { r.RenewTime = at("0000-01-01T00:00:00+01:00") }), false},
	} {
		if err := checkRecord(c.record); (err == nil) != c.fits {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := checkWritable(record(func(r *rec) { r.LeaseDurationSeconds = 1 })); err != nil {
		t.Error(err)
	}
	if err := checkWritable(record(func(r *rec) { r.HolderKey = "\xff" })); err == nil {
		t.Error("a key that is not UTF-8 can be written")
	}
	raw := []byte(goldenJSON)
	full := append(raw, strings.Repeat(" ", maxRecord-len(raw))...)
	if _, err := decodeJSON(full); err != nil {
		t.Errorf("%d bytes: %v", len(full), err)
	}
	if _, err := decodeJSON(append(full, ' ')); err == nil {
		t.Errorf("%d bytes are believed", len(full)+1)
	}
	if got := utc(metav1.Time{}); got != (metav1.Time{}) {
		t.Errorf("no time became %#v", got)
	}
}
