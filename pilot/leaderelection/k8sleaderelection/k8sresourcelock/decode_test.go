package k8sresourcelock

import (
	"testing"

	"incumbent.dev/incumbent/internal/record"
)

func TestDecode_Content(t *testing.T) {
	for name, c := range map[string]struct {
		snap Snapshot
		want record.Content
	}{
		"empty":      {Snapshot{Exists: true, ResourceVersion: "7"}, record.Missing},
		"unreadable": {Snapshot{Exists: true, ResourceVersion: "7", Raw: []byte("{"), Unreadable: ErrUnreadable}, record.Unreadable},
		"a record":   {Snapshot{Exists: true, ResourceVersion: "7", Raw: []byte("{}")}, record.Readable},
	} {
		got, err := c.snap.Decode()
		if err != nil || got.Content != c.want || got.Version != 7 {
			t.Errorf("%s: %+v, error %v", name, got, err)
		}
	}
}

func TestDecode_InvalidOrAbsent(t *testing.T) {
	for _, odd := range []string{"12x", "12+30"} {
		if _, err := (Snapshot{Exists: true, ResourceVersion: odd}).Decode(); err == nil {
			t.Errorf("%s is accepted as a version", odd)
		}
	}
	got, err := Snapshot{
		ResourceVersion: "30", UID: "s",
		Annotations: map[string]string{record.NominatedAnnotation: "a"}, // ignored without an object
	}.Decode()
	if want := (record.Snapshot{Version: 30, UID: "s"}); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestEncode_IsInverse(t *testing.T) {
	for _, want := range []LeaderElectionRecord{golden, {LeaseDurationSeconds: 1}} {
		if got := Encode(decodeRecord(want)); got != want {
			t.Errorf("%+v became %+v", want, got)
		}
	}
}
