package core

import "testing"

func TestFailedNominees(t *testing.T) {
	was := FailedNominees{Names: [4]string{"c"}, Until: testNow.Mono, Steps: 1}
	failed := FailedNominees{Names: [4]string{"b", "c"}, Until: seconds(20), Steps: 2}
	was5MinutesAgo := was
	was5MinutesAgo.Until = seconds(-301)
	for name, x := range map[string]struct {
		was, next Snapshot
		state     FailedNominees
		want      FailedNominees
	}{
		"it fails again":         {lock("nominated"), lock("free", newer), FailedNominees{Names: [4]string{"c", "b"}, Until: testNow.Mono, Steps: 5}, FailedNominees{Names: [4]string{"c", "b"}, Until: seconds(300), Steps: 5}},
		"first failure for long": {lock("nominated"), lock("free", newer), was5MinutesAgo, FailedNominees{Names: [4]string{"b"}, Until: seconds(10), Steps: 1}},
		"it acquires":            {lock("nominated"), lock("equal", newer), was, FailedNominees{}},
		"a label":                {lock("nominated"), lock("nominated", newer), was, was},
		"this candidate":         {lock("nominated me"), lock("free", newer), was, was},
		"named by a coordinator": {lock("nominated", func(s *Snapshot) { s.Annotations.Nominated.Uncounted = true }), lock("free", newer), was, was},
	} {
		s := seenAt(0, x.was)
		s.Failed = x.state
		if got := testConfig().failedNominees(s, x.next, testNow.Mono); got != x.want {
			t.Errorf("%s: %+v, want %+v", name, got, x.want)
		}
	}
	full := FailedNominees{Names: [4]string{"b", "c", "d", "e"}, Until: seconds(10)}
	if now := testNow.Mono; !failed.include("c", now) || failed.include("d", now) || failed.include("b", seconds(20)) || !full.include("x", now) {
		t.Error("wrong challengers are refused")
	}
}
