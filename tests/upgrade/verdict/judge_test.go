package verdict

import (
	"strings"
	"testing"
	"time"
)

// begun is the start of each log: stable is the default revision, leads, and has served a namespace.
func begun(t *testing.T) *script {
	s := newScript(t)
	s.flip("stable")
	s.lock("stable-1", bundles, "stable-1", "stable", 1)
	s.space("shop")
	s.bundle("stable-1", "shop", "right")
	return s
}

func TestJudge_CorrectLog(t *testing.T) {
	for name, play := range map[string]func(s *script){
		"no more events": func(*script) {},
		"a flip": func(s *script) {
			s.flip("canary")
			s.handover("stable-1", "canary-1", 2)
			s.space("more")
			s.bundle("canary-1", "more", "right")
		},
		"two flips, and repairs by both leaders": func(s *script) {
			for i, revision := range []string{"canary", "stable"} {
				s.flip(revision)
				s.handover([]string{"stable-1", "canary-1"}[i], revision+"-1", i+2)
				s.bundle("admin", "shop", "wrong")
				s.bundle(revision+"-1", "shop", "right")
			}
		},
		"renewals between writes": func(s *script) {
			for range 3 {
				s.lock("stable-1", bundles, "stable-1", "stable", 1)
				s.space("more")
				s.bundle("stable-1", "more", "right")
				s.put("admin", "delete", "namespaces", "", "more", fields{"metadata": fields{"deletionTimestamp": "now"}})
			}
		},
		"a release": func(s *script) {
			s.lock("stable-1", bundles, "", "", 1)
			s.lock("stable-2", bundles, "stable-2", "stable", 2)
			s.bundle("admin", "shop", "wrong")
			s.bundle("stable-2", "shop", "right")
		},
		"a handover request does not end the term": func(s *script) {
			s.lock("canary-1", bundles, "stable-1", "stable", 1)
			s.bundle("admin", "shop", "wrong")
			s.bundle("stable-1", "shop", "right")
		},
		"a deleted lock": func(s *script) {
			s.remove("admin", "leases", home, bundles)
			s.bundle("admin", "shop", "wrong")
			s.bundle("stable-1", "shop", "right")
			s.lock("stable-1", bundles, "stable-1", "stable", 1)
		},
		"rejected, dry-run and empty writes": func(s *script) {
			s.log(request{verb: "patch", resource: "configmaps", namespace: "shop", name: "bundle", who: "canary-1", code: 403, stage: stageComplete})
			s.log(request{verb: "patch", resource: "configmaps", namespace: "shop", name: "bundle", who: "canary-1", code: 200, dry: true, stage: stageComplete})
			same := fields{"metadata": fields{"uid": s.uids[key("configmaps", "shop", "bundle")], "resourceVersion": "4"}}
			s.log(request{verb: "patch", resource: "configmaps", namespace: "shop", name: "bundle", who: "canary-1", code: 200, object: same, stage: stageComplete})
		},
		"a terminating namespace without a bundle": func(s *script) {
			s.space("brief")
			s.put("admin", "delete", "namespaces", "", "brief", fields{"metadata": fields{"deletionTimestamp": "now"}})
		},
		"a deleted and recreated object": func(s *script) {
			s.remove("admin", "configmaps", "shop", "bundle")
			s.bundle("stable-1", "shop", "right")
		},
		"a term that began with an unanswered write": func(s *script) {
			s.lock("stable-1", bundles, "", "", 1)
			s.unanswered("stable-2", bundles)
			s.lock("stable-2", bundles, "stable-2", "stable", 3)
			s.bundle("admin", "shop", "wrong")
			s.bundle("stable-2", "shop", "right")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := begun(t)
			play(s)
			if err := s.judged(config()).Err(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Each log violates one rule once.
func TestJudge_Violation(t *testing.T) {
	flipped := func(s *script) {
		s.flip("canary")
		s.handover("stable-1", "canary-1", 2)
	}
	for name, test := range map[string]struct {
		rule Rule
		play func(s *script)
		want string
	}{
		"a Pod without a term": {Unelected, func(s *script) {
			s.bundle("admin", "shop", "wrong")
			s.bundle("stable-2", "shop", "right")
		}, "patch by stable-2 of configmaps shop/bundle at 6, without a term of bundles"},
		"before the term": {Unelected, func(s *script) {
			s.flip("canary")
			s.bundle("canary-1", "shop", "right")
			s.handover("stable-1", "canary-1", 2)
		}, "canary-1"},
		"nominated, before its own write": {Unelected, func(s *script) {
			s.flip("canary")
			s.lock("stable-1", bundles, "canary-1", "canary", 2)
			s.bundle("canary-1", "shop", "right")
			s.lock("canary-1", bundles, "canary-1", "canary", 2)
		}, "canary-1"},
		"after a write of the next term": {Interleaved, func(s *script) {
			flipped(s)
			s.space("a")
			s.bundle("canary-1", "a", "right")
			s.space("b")
			s.bundle("stable-1", "b", "right")
		}, "patch by stable-1 of configmaps b/bundle"},
		"after the next term began": {Late, func(s *script) {
			flipped(s)
			s.bundle("stable-1", "shop", "right")
		}, "the term of canary-1 began at 7"},
		"after the release": {Late, func(s *script) {
			s.lock("stable-1", bundles, "", "", 1)
			s.bundle("stable-1", "shop", "right")
		}, "its term was released at 5"},
		"after the handover": {Late, func(s *script) {
			s.flip("canary")
			s.lock("stable-1", bundles, "canary-1", "canary", 2)
			s.bundle("stable-1", "shop", "right")
			s.lock("canary-1", bundles, "canary-1", "canary", 2)
		}, "handed over at 6"},
		"written back": {Returned, func(s *script) {
			flipped(s)
			s.bundle("canary-1", "shop", "other")
			s.handover("canary-1", "stable-1", 3)
			s.bundle("stable-1", "shop", "right")
		}, "although the default revision did not return to stable"},
		"written back before the flip": {Returned, func(s *script) {
			flipped(s)
			s.bundle("canary-1", "shop", "right2")
			s.handover("canary-1", "stable-1", 3)
			s.bundle("stable-1", "shop", "right")
			s.flip("stable")
			s.flip("canary")
		}, "did not return to stable"},
		"missing at the end": {Unwanted, func(s *script) { s.space("late") }, "bundle late/late at the end: it is missing"},
		"wrong at the end":   {Unwanted, func(s *script) { s.bundle("admin", "shop", "wrong") }, "it has other content"},
		"deleted at the end": {Unwanted, func(s *script) { s.remove("admin", "configmaps", "shop", "bundle") }, "it is missing"},
		"a gap in the log of the lock": {Incomplete, func(s *script) {
			s.lock("stable-1", bundles, "stable-1", "stable", 3)
		}, "goes from 1 transitions to 3"},
		"a gap and an unanswered write of another lock": {Incomplete, func(s *script) {
			s.unanswered("stable-1", "other")
			s.lock("stable-1", bundles, "stable-1", "stable", 3)
		}, "goes from 1 transitions to 3"},
		"a gap before an unanswered write": {Incomplete, func(s *script) {
			s.lock("stable-1", bundles, "stable-1", "stable", 3)
			s.unanswered("stable-1", bundles)
		}, "goes from 1 transitions to 3"},
		"a gap of two and one unanswered write": {Incomplete, func(s *script) {
			s.unanswered("stable-1", bundles)
			s.lock("stable-1", bundles, "stable-1", "stable", 4)
		}, "goes from 1 transitions to 4"},
		"two gaps and one unanswered write": {Incomplete, func(s *script) {
			s.unanswered("stable-1", bundles)
			s.lock("stable-1", bundles, "stable-1", "stable", 3)
			s.lock("stable-1", bundles, "stable-1", "stable", 5)
		}, "goes from 3 transitions to 5"},
		"transitions that fall": {Incomplete, func(s *script) {
			s.lock("stable-1", bundles, "stable-1", "stable", 0)
		}, "goes from 1 transitions to 0"},
	} {
		t.Run(name, func(t *testing.T) {
			s := begun(t)
			test.play(s)
			v := s.judged(config())
			if err := v.Err(); len(v.Violations) != 1 || v.Violations[0].Rule != test.rule || !strings.Contains(err.Error(), test.want) {
				t.Errorf("want one violation of %s with %q: %v", test.rule, test.want, err)
			}
		})
	}
}

func TestJudge_EmptyLog(t *testing.T) {
	v := newScript(t).judged(config())
	if err := v.Err(); len(v.Violations) != 2 || !strings.Contains(err.Error(), "no write is guarded by bundles") ||
		!strings.Contains(err.Error(), "never a default revision") {
		t.Error(err)
	}
}

func TestJudge_FailedRequests(t *testing.T) {
	c := config()
	c.Requests = Requests{Sent: 10, Failed: 1, Drain: 5 * time.Second, Errors: []string{"refused"}}
	if err := begun(t).judged(c).Err(); err == nil || !strings.Contains(err.Error(), "requests: 1 of 10 failed, with a drain of 5s: refused") {
		t.Error(err)
	}
}

// Late writes of other electors are counted.
func TestJudge_Peers(t *testing.T) {
	s := begun(t)
	s.flip("canary")
	s.lock("canary-1", bundles, "canary-1", "canary", 2)
	s.bundle("stable-1", "shop", "right2")
	s.bundle("canary-1", "shop", "right")
	s.bundle("stable-1", "shop", "right2")
	s.bundle("canary-1", "shop", "right")
	c := config()
	c.Peers = []string{"stable"}
	v := s.judged(c)
	if v.LateWrites != 2 || v.Overlap != 3*time.Second {
		t.Errorf("%d late writes, over %v", v.LateWrites, v.Overlap)
	}
	for _, violation := range v.Violations {
		if violation.Rule != Returned {
			t.Error(violation)
		}
	}
}

// Timestamps do not change the verdict.
func TestJudge_IgnoresTimestamps(t *testing.T) {
	for name, step := range map[string]time.Duration{"original": time.Second, "backwards": -time.Second, "equal": 0} {
		s := begun(t)
		for range 2 {
			s.clock = s.clock.Add(step - time.Second)
			s.flip("canary")
		}
		s.clock = s.clock.Add(5 * step)
		s.handover("stable-1", "canary-1", 2)
		s.clock = s.clock.Add(7 * step)
		s.bundle("stable-1", "shop", "right")
		if v := s.judged(config()); len(v.Violations) != 1 || v.Violations[0].Rule != Late {
			t.Errorf("%s: %v", name, v.Err())
		}
	}
}

// The events of several API servers come in any order.
func TestOrder_SeveralLogs(t *testing.T) {
	s := begun(t)
	s.flip("canary")
	s.handover("stable-1", "canary-1", 2)
	s.space("a")
	s.bundle("canary-1", "a", "right")
	s.remove("admin", "configmaps", "a", "bundle")
	s.bundle("canary-1", "a", "right")
	events, err := Read(strings.NewReader(s.lines.String()))
	if err != nil {
		t.Fatal(err)
	}
	var odd, even []Event
	for i, e := range events {
		if i%2 == 0 {
			even = append([]Event{e}, even...)
		} else {
			odd = append([]Event{e}, odd...)
		}
	}
	h, err := Order(odd, even)
	if err != nil {
		t.Fatal(err)
	}
	if err := Judge(h, config()).Err(); err != nil {
		t.Error(err)
	}
	for i := 1; i < len(h.Writes); i++ {
		if h.Writes[i].Version < h.Writes[i-1].Version {
			t.Errorf("%v comes after %v", h.Writes[i], h.Writes[i-1])
		}
	}
	// The deletion comes between the two objects of one name.
	for i, w := range h.Writes {
		if w.Deleted && (h.Writes[i-1].UID != w.UID || h.Writes[i+1].Name != "bundle") {
			t.Errorf("the deletion comes after %v and before %v", h.Writes[i-1], h.Writes[i+1])
		}
	}
}

// A killed API server leaves a request without a response, and possibly an incomplete line.
func TestRead_IncompleteLog(t *testing.T) {
	s := begun(t)
	s.log(request{verb: "patch", resource: "configmaps", namespace: "shop", name: "bundle", who: "stable-1", stage: stageReceived})
	s.lines.WriteString(`{"auditID": "half`)
	v := s.judged(config())
	if err := v.Err(); err != nil || v.Unanswered != 1 {
		t.Errorf("%d unanswered: %v", v.Unanswered, err)
	}
	half := `{"kind":"Event","auditID":"a","requestObj{"kind":"Event","auditID":"b"}` + "\n"
	if events, err := Read(strings.NewReader(half)); err != nil || len(events) != 1 || events[0].AuditID != "b" {
		t.Errorf("incomplete line before a complete one: %v, %v", events, err)
	}
	if _, err := Read(strings.NewReader("{\n{}\n")); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("broken line in the middle: %v", err)
	}
}

func TestFigures(t *testing.T) {
	s := begun(t) // 4 s
	s.flip("canary")
	s.put("admin", "update", "configmaps", home, StepName, fields{"data": fields{StepKey: "flip"}})
	s.handover("stable-1", "canary-1", 2)
	s.space("a")
	s.bundle("canary-1", "a", "wrong")
	s.bundle("canary-1", "a", "right")
	s.flip("stable")
	s.flip("canary")
	v := s.judged(config())
	if err := v.Err(); err != nil {
		t.Fatal(err)
	}
	text := v.String()
	for _, want := range []string{
		"median 0s, p99 3s (2 flips, 1 unfinished)", "terms: 2; longest time without a leader: 1s (bundles, handed over by stable-1)",
		"guarded writes: 3 to 2 objects",
		"not in the desired state (bundle, created): 2 times, at most 2s (a/a: it is missing, during: flip)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestQuantile(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i))
	}
	for part, want := range map[float64]time.Duration{0.5: 50, 0.99: 99, 1: 100} {
		if got := Quantile(hundred, part); got != want {
			t.Errorf("quantile %v of 1 to 100: %d", part, got)
		}
	}
	if Quantile(nil, 0.5) != 0 {
		t.Error("no durations: want 0")
	}
}
