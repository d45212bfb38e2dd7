package codec

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Only a valid marker is decoded.
func TestMarker(t *testing.T) {
	for s, want := range map[string]core.Marker{
		"v1 a 3":                {Identity: "a", Transitions: 3},
		"v1 a 3 handover":       {Identity: "a", Transitions: 3, Handover: true},
		"v1 a 3 unfit":          {Identity: "a", Transitions: 3, Unfit: true},
		"v1 a 3 handover unfit": {Identity: "a", Transitions: 3, Handover: true, Unfit: true},
		"":                      {}, "v1": {}, "v1 a": {}, "v2 a 3": {}, "v1  3": {}, "v1 a x": {}, "v1 a 3 later": {}, "v1 a 3 ": {},
	} {
		got := parseMarker(s)
		if got != want {
			t.Errorf("%q: %+v, want %+v", s, got, want)
		}
		if want != (core.Marker{}) && formatMarker(got) != s {
			t.Errorf("%q is written as %q", s, formatMarker(got))
		}
	}
}

func TestRequestAndHold(t *testing.T) {
	for s, believed := range map[string]bool{
		`{"identity":"b","key":"canary","reason":"default-revision"}`: true,
		`{"identity":"b c","reason":"default-revision"}`:              false,
		`{"identity":"b c","reason":"operator"}`:                      false,
		`{"reason":"operator"}`:                                       true, // to step down
		`{"reason":"default-revision"}`:                               false,
		`{"identity":"b","key":"a b"}`:                                false,
		`{"identity":7}`:                                              false,
		``:                                                            false,
		`null`:                                                        false,
	} {
		r := parseRequest(s)
		if (r != core.Request{}) != believed {
			t.Errorf("%s: %+v", s, r)
		}
		if again := parseRequest(FormatRequest(r)); believed && again != r {
			t.Errorf("%+v became %+v", r, again)
		}
	}
	for s, believed := range map[string]bool{`{"holder":"a","seconds":5}`: true, `{"holder":7}`: false, ``: false} {
		if h := fromJSON[core.Hold](s); (h != core.Hold{}) != believed {
			t.Errorf("%s: %+v", s, h)
		}
	}
}

func TestEncodeAnnotations(t *testing.T) {
	if got := EncodeAnnotations(core.Annotations{}); len(got) != 0 {
		t.Errorf("empty annotations are encoded as %v", got)
	}
	got := EncodeAnnotations(core.Annotations{Marker: core.Marker{Identity: "a", Transitions: 3}, Nominated: core.Nomination{Identity: "b"}})
	want := map[string]string{k8sresourcelock.MarkerAnnotation: "v1 a 3", k8sresourcelock.NominatedAnnotation: "b"}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestSnapshot_Content(t *testing.T) {
	for name, c := range map[string]struct {
		snap k8sresourcelock.Snapshot
		want core.Content
	}{
		"empty":      {k8sresourcelock.Snapshot{Exists: true, ResourceVersion: "7"}, core.Missing},
		"unreadable": {k8sresourcelock.Snapshot{Exists: true, ResourceVersion: "7", Raw: []byte("{"), Unreadable: k8sresourcelock.ErrUnreadable}, core.Unreadable},
		"a record":   {k8sresourcelock.Snapshot{Exists: true, ResourceVersion: "7", Raw: []byte("{}")}, core.Readable},
	} {
		got, err := Snapshot(c.snap)
		if err != nil || got.Content != c.want || got.Version != 7 {
			t.Errorf("%s: %+v, error %v", name, got, err)
		}
	}
	if stamp(metav1.Time{}) != 0 || unstamp(0) != (metav1.Time{}) {
		t.Error("the zero time is not 0")
	}
	now := metav1.Now().Rfc3339Copy()
	if got := unstamp(stamp(now)); !got.Equal(&now) {
		t.Errorf("%v became %v", now, got)
	}
}

func TestSnapshot_InvalidOrAbsent(t *testing.T) {
	for _, odd := range []string{"12x", "12+30"} {
		if _, err := Snapshot(k8sresourcelock.Snapshot{Exists: true, ResourceVersion: odd}); err == nil {
			t.Errorf("%s is accepted as a version", odd)
		}
	}
	got, err := Snapshot(k8sresourcelock.Snapshot{
		ResourceVersion: "30",
		Annotations:     map[string]string{k8sresourcelock.NominatedAnnotation: "a"}, // ignored without an object
	})
	if want := (core.Snapshot{Version: 30}); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
}

// A nomination is for the term in the hold of a transfer to the same holder, otherwise for the recorded term.
func TestNomination_Term(t *testing.T) {
	snap := k8sresourcelock.Snapshot{Annotations: map[string]string{k8sresourcelock.NominatedAnnotation: "a"}}
	snap.Record.LeaderTransitions = 5
	for _, c := range []struct {
		hold core.Hold
		want core.Nomination
	}{
		{core.Hold{Reason: core.HoldForTransfer, Holder: "a", Transitions: 4}, core.Nomination{Identity: "a", Transitions: 4}},
		{core.Hold{Reason: core.HoldForTransfer, Holder: "b", Transitions: 4}, core.Nomination{Identity: "a", Transitions: 5}},
		{core.Hold{Reason: "pause", Holder: "a", Transitions: 4}, core.Nomination{Identity: "a", Transitions: 5}},
		{core.Hold{}, core.Nomination{Identity: "a", Transitions: 5}},
	} {
		if got := nomination(snap, c.hold); got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.hold, got, c.want)
		}
	}
	snap.Strategy, snap.Record.HolderIdentity = "example.com/Zone", "b"
	if got, want := nomination(snap, core.Hold{}), (core.Nomination{Identity: "b", Transitions: 5, Uncounted: true}); got != want || EncodeAnnotations(core.Annotations{Nominated: got})[k8sresourcelock.NominatedAnnotation] != "" {
		t.Errorf("named by a coordinator: %+v with an annotation; want %+v without", got, want)
	}
	snap.Record.AcquireTime = unstamp(7)
	if got := nomination(snap, core.Hold{}); got.Uncounted {
		t.Errorf("after the first own write: %+v", got)
	}
	delete(snap.Annotations, k8sresourcelock.NominatedAnnotation)
	if got := nomination(snap, core.Hold{Reason: core.HoldForTransfer, Transitions: 4}); got != (core.Nomination{}) {
		t.Errorf("no nomination: %+v", got)
	}
}
