package k8sresourcelock

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

func at(s string) metav1.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		panic(err)
	}
	return metav1.NewTime(t.UTC())
}

// golden is the example record of the wire format.
var golden = LeaderElectionRecord{
	HolderIdentity: "pod-a", HolderKey: "stable", LeaseDurationSeconds: 30,
	AcquireTime: at("2026-01-02T03:04:05Z"), RenewTime: at("2026-01-02T03:04:12Z"), LeaderTransitions: 3,
}

const goldenJSON = `{"holderIdentity":"pod-a","holderKey":"stable","leaseDurationSeconds":30,` +
	`"acquireTime":"2026-01-02T03:04:05Z","renewTime":"2026-01-02T03:04:12Z","leaderTransitions":3}`

// istiod uses the same field names in the same order. The fence matches a prefix of these bytes.
func TestEncodeConfigMap_Golden(t *testing.T) {
	released := LeaderElectionRecord{
		LeaseDurationSeconds: 1, LeaderTransitions: 3,
		AcquireTime: at("2026-01-02T04:04:05+01:00"), RenewTime: at("2026-01-02T03:04:12.987654321Z"),
	}
	tests := map[string]struct {
		record LeaderElectionRecord
		want   string
	}{
		"held": {golden, goldenJSON},
		"released": {released, `{"holderIdentity":"","holderKey":"","leaseDurationSeconds":1,` +
			`"acquireTime":"2026-01-02T03:04:05Z","renewTime":"2026-01-02T03:04:12Z","leaderTransitions":3}`},
		"zero": {LeaderElectionRecord{}, `{"holderIdentity":"","holderKey":"","leaseDurationSeconds":0,` +
			`"acquireTime":null,"renewTime":null,"leaderTransitions":0}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cm := &corev1.ConfigMap{}
			harness.Must(t, encodeConfigMap(cm, tt.record))
			if got := cm.Annotations[LeaderElectionRecordAnnotationKey]; got != tt.want {
				t.Errorf("\n got %s\nwant %s", got, tt.want)
			}
		})
	}
}

// Readers share the object of a snapshot, so a write is composed of a copy.
func TestCompose_CopiesBase(t *testing.T) {
	meta := metav1.ObjectMeta{
		Namespace: "a", Name: "x", ResourceVersion: "1", UID: "u", Labels: map[string]string{"theirs": "1"}, Annotations: map[string]string{"theirs": "1"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "them"}}, OwnerReferences: []metav1.OwnerReference{{Name: "owner"}},
	}
	a := access[*corev1.ConfigMap]{format: configMaps, labels: map[string]string{"own": "1"}}
	shown := &corev1.ConfigMap{ObjectMeta: meta}
	want := shown.DeepCopy()
	sent, err := a.compose(Snapshot{Exists: true, Object: shown, ResourceVersion: "2", UID: "u"}, golden, map[string]string{record.MarkerAnnotation: "own"})
	harness.Must(t, err)
	if sent.Labels["own"] != "1" || sent.ResourceVersion != "2" || sent.Annotations[LeaderElectionRecordAnnotationKey] != goldenJSON {
		t.Errorf("sent %+v", sent)
	}
	if !reflect.DeepEqual(shown, want) {
		t.Errorf("the object of the snapshot is now %+v, was %+v", shown, want)
	}
}

func TestDecodeJSON(t *testing.T) {
	with := func(change func(*LeaderElectionRecord)) LeaderElectionRecord {
		r := golden
		change(&r)
		return r
	}
	tests := map[string]struct {
		raw  string
		want LeaderElectionRecord
	}{
		"golden":           {goldenJSON, golden},
		"other zone":       {strings.ReplaceAll(goldenJSON, "T03:04:12Z", "T08:34:12+05:30"), golden},
		"spaces":           {" \n" + goldenJSON + "\n", golden},
		"unknown fields":   {strings.Replace(goldenJSON, "{", `{"preferredHolder":"x","deep":{"a":[1]},`, 1), golden},
		"without a key":    {strings.Replace(goldenJSON, `"holderKey":"stable",`, "", 1), with(func(r *LeaderElectionRecord) { r.HolderKey = "" })},
		"empty object":     {`{}`, LeaderElectionRecord{}},
		"null times":       {`{"holderIdentity":"a","acquireTime":null,"renewTime":null}`, LeaderElectionRecord{HolderIdentity: "a"}},
		"longest duration": {`{"leaseDurationSeconds":2147483647}`, LeaderElectionRecord{LeaseDurationSeconds: 2147483647}},
		"highest count":    {`{"leaderTransitions":2147483647}`, LeaderElectionRecord{LeaderTransitions: 2147483647}},
		"absurd count":     {`{"leaderTransitions":9999999999}`, LeaderElectionRecord{LeaderTransitions: 9999999999}},
		"long identity":    {`{"holderIdentity":"` + strings.Repeat("x", 1024) + `"}`, LeaderElectionRecord{HolderIdentity: strings.Repeat("x", 1024)}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := decodeJSON([]byte(tt.raw))
			if err != nil || got != tt.want { // == on times: all are in UTC
				t.Errorf("got %+v, %v\nwant %+v", got, err, tt.want)
			}
		})
	}
}

var unreadableJSON = map[string]string{
	"nothing":             ``,
	"spaces":              `  `,
	"null":                `null`,
	"text":                `pod-a`,
	"string":              `"pod-a"`,
	"number":              `7`,
	"list":                `[{}]`,
	"cut off":             goldenJSON[:len(goldenJSON)-1],
	"more behind":         goldenJSON + `{}`,
	"identity a number":   `{"holderIdentity":7}`,
	"key a list":          `{"holderKey":[]}`,
	"duration a string":   `{"leaseDurationSeconds":"30"}`,
	"duration a fraction": `{"leaseDurationSeconds":15.5}`,
	"duration negative":   `{"leaseDurationSeconds":-1}`,
	"duration absurd":     `{"leaseDurationSeconds":2147483648}`,
	"duration too large":  `{"leaseDurationSeconds":1e300}`,
	"count negative":      `{"leaderTransitions":-1}`,
	"count too large":     `{"leaderTransitions":9223372036854775808}`,
	"time a number":       `{"renewTime":1767322212}`,
	"time a word":         `{"renewTime":"yesterday"}`,
	"year out of range":   `{"renewTime":"12026-01-02T03:04:12Z"}`,
	"over-long identity":  `{"holderIdentity":"` + strings.Repeat("x", 1025) + `"}`,
	"over-long key":       `{"holderKey":"` + strings.Repeat("x", 1025) + `"}`,
	"over-long record":    `{"padding":"` + strings.Repeat("x", 16<<10) + `"}`,
	"deep nesting":        `{"padding":` + strings.Repeat("[", 15000) + `}`,
}

func TestConfigMapSnapshot_Unreadable(t *testing.T) {
	for name, raw := range unreadableJSON {
		t.Run(name, func(t *testing.T) {
			snap := ConfigMapSnapshot(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Annotations: map[string]string{LeaderElectionRecordAnnotationKey: raw},
			}})
			if !errors.Is(snap.Unreadable, ErrUnreadable) || snap.Record != (LeaderElectionRecord{}) || !snap.Exists {
				t.Errorf("unreadable %v, record %+v", snap.Unreadable, snap.Record)
			}
			if snap.Raw == nil || string(snap.Raw) != raw {
				t.Errorf("raw %.50q, want %.50q", snap.Raw, raw)
			}
		})
	}
	if snap := ConfigMapSnapshot(nil); snap.Exists {
		t.Errorf("no ConfigMap: %+v", snap)
	}
	if snap := ConfigMapSnapshot(&corev1.ConfigMap{}); snap.Raw != nil || snap.Unreadable != nil {
		t.Errorf("no annotation: raw %q, unreadable %v", snap.Raw, snap.Unreadable)
	}
}

// FuzzConfigMapRecord checks that every annotation is either unreadable or
// a record that can be written and reads the same again.
func FuzzConfigMapRecord(f *testing.F) {
	f.Add(goldenJSON)
	f.Add(`{}`)
	f.Add(`{"HOLDERIDENTITY":"a","holderIdentity":"b","leaseDurationSeconds":1}`)
	f.Add(`{"holderIdentity":"\ud800","leaseDurationSeconds":1}`)
	f.Add(`{"renewTime":"0000-01-01T00:00:00Z","leaseDurationSeconds":1}`)
	f.Add(`{"renewTime":"9999-12-31T23:59:59.999999999-23:59","leaseDurationSeconds":1}`)
	for _, raw := range unreadableJSON {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		snap := ConfigMapSnapshot(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Annotations: map[string]string{LeaderElectionRecordAnnotationKey: raw},
		}})
		if snap.Unreadable != nil {
			if snap.Record != (LeaderElectionRecord{}) {
				t.Errorf("unreadable, yet %+v", snap.Record)
			}
			return
		}
		harness.Must(t, checkRecord(snap.Record))
		if snap.Record.LeaseDurationSeconds == 0 {
			return // readable, but not to be written
		}
		cm := &corev1.ConfigMap{}
		harness.Must(t, encodeConfigMap(cm, snap.Record))
		again := ConfigMapSnapshot(cm)
		if again.Unreadable != nil || !sameSeconds(again.Record, snap.Record) {
			t.Errorf("%+v became %+v (%v)", snap.Record, again.Record, again.Unreadable)
		}
	})
}

func sameSeconds(a, b LeaderElectionRecord) bool {
	seconds := func(t metav1.Time) metav1.Time { return utc(metav1.NewTime(t.Truncate(time.Second))) }
	for _, r := range []*LeaderElectionRecord{&a, &b} {
		r.AcquireTime, r.RenewTime = seconds(r.AcquireTime), seconds(r.RenewTime)
	}
	return a == b
}
