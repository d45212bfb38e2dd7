package verdict

import (
	"strings"
	"testing"
	"time"
)

// begun is how each log begins: stable is the default, leads, and has served a namespace.
func begun(t *testing.T) *script {
	s := newScript(t)
	s.flip("stable")
	s.lock("stable-1", bundles, "stable-1", "stable", 1)
	s.space("shop")
	s.bundle("stable-1", "shop", "right")
	return s
}

func TestHonestLogsAreAcquitted(t *testing.T) {
	for name, play := range map[string]func(s *script){
		"nothing more": func(*script) {},
		"a flip": func(s *script) {
			s.flip("canary")
			s.handover("stable-1", "canary-1", 2)
			s.space("more")
			s.bundle("canary-1", "more", "right")
		},
		"there and back, each repairing what somebody has spoilt": func(s *script) {
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
		"a release, and the next": func(s *script) {
			s.lock("stable-1", bundles, "", "", 1)
			s.lock("stable-2", bundles, "stable-2", "stable", 2)
			s.bundle("admin", "shop", "wrong")
			s.bundle("stable-2", "shop", "right")
		},
		"a challenger's request leaves the term alone": func(s *script) {
			s.lock("canary-1", bundles, "stable-1", "stable", 1)
			s.bundle("admin", "shop", "wrong")
			s.bundle("stable-1", "shop", "right")
		},
		"the lock was deleted, and the leader learns of it": func(s *script) {
			s.remove("admin", "leases", home, bundles)
			s.bundle("admin", "shop", "wrong")
			s.bundle("stable-1", "shop", "right")
			s.lock("stable-1", bundles, "stable-1", "stable", 1)
		},
		"what was refused, tried dry, or changed nothing": func(s *script) {
			s.log(request{verb: "patch", resource: "configmaps", namespace: "shop", name: "bundle", who: "canary-1", code: 403, stage: stageComplete})
			s.log(request{verb: "patch", resource: "configmaps", namespace: "shop", name: "bundle", who: "canary-1", code: 200, dry: true, stage: stageComplete})
			same := fields{"metadata": fields{"uid": s.uids[key("configmaps", "shop", "bundle")], "resourceVersion": "4"}}
			s.log(request{verb: "patch", resource: "configmaps", namespace: "shop", name: "bundle", who: "canary-1", code: 200, object: same, stage: stageComplete})
		},
		"a namespace without a bundle that goes": func(s *script) {
			s.space("brief")
			s.put("admin", "delete", "namespaces", "", "brief", fields{"metadata": fields{"deletionTimestamp": "now"}})
		},
		"deleted and put back": func(s *script) {
			s.remove("admin", "configmaps", "shop", "bundle")
			s.bundle("stable-1", "shop", "right")
		},
		"a term that began by a write whose answer was lost with its server": func(s *script) {
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

// Each of these logs has one thing wrong with it, of the rule that it is listed under.
func TestWrongLogsAreConvicted(t *testing.T) {
	flipped := func(s *script) {
		s.flip("canary")
		s.handover("stable-1", "canary-1", 2)
	}
	for name, test := range map[string]struct {
		rule Rule
		play func(s *script)
		want string
	}{
		"a pod that was never elected": {Unelected, func(s *script) {
			s.bundle("admin", "shop", "wrong")
			s.bundle("stable-2", "shop", "right")
		}, "stable-2's patch of configmaps shop/bundle at 6, without a term of bundles"},
		"before its term": {Unelected, func(s *script) {
			s.flip("canary")
			s.bundle("canary-1", "shop", "right")
			s.handover("stable-1", "canary-1", 2)
		}, "canary-1's"},
		"nominated, but not yet by an own write": {Unelected, func(s *script) {
			s.flip("canary")
			s.lock("stable-1", bundles, "canary-1", "canary", 2)
			s.bundle("canary-1", "shop", "right")
			s.lock("canary-1", bundles, "canary-1", "canary", 2)
		}, "canary-1's"},
		"between another's writes": {Interleaved, func(s *script) {
			flipped(s)
			s.space("a")
			s.bundle("canary-1", "a", "right")
			s.space("b")
			s.bundle("stable-1", "b", "right")
		}, "stable-1's patch of configmaps b/bundle"},
		"after the next term began": {Late, func(s *script) {
			flipped(s)
			s.bundle("stable-1", "shop", "right")
		}, "the term of canary-1 began at 7"},
		"after its own release": {Late, func(s *script) {
			s.lock("stable-1", bundles, "", "", 1)
			s.bundle("stable-1", "shop", "right")
		}, "its term was released at 5"},
		"after it has written another in": {Late, func(s *script) {
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
		}, "without the default having come back to stable"},
		"written back by the one to whom the default did not come": {Returned, func(s *script) {
			flipped(s)
			s.bundle("canary-1", "shop", "right2")
			s.handover("canary-1", "stable-1", 3)
			s.bundle("stable-1", "shop", "right")
			s.flip("stable")
			s.flip("canary")
		}, "come back to stable"},
		"missing at the end": {Unwanted, func(s *script) { s.space("late") }, "bundle late/late at the end: it is missing"},
		"wrong at the end":   {Unwanted, func(s *script) { s.bundle("admin", "shop", "wrong") }, "it is another one"},
		"deleted at the end": {Unwanted, func(s *script) { s.remove("admin", "configmaps", "shop", "bundle") }, "it is missing"},
		"a hole in the lock's log": {Incomplete, func(s *script) {
			s.lock("stable-1", bundles, "stable-1", "stable", 3)
		}, "goes from 1 transitions to 3"},
		"a hole beside a write of another lock that was not answered": {Incomplete, func(s *script) {
			s.unanswered("stable-1", "other")
			s.lock("stable-1", bundles, "stable-1", "stable", 3)
		}, "goes from 1 transitions to 3"},
		"a hole before a write that was not answered": {Incomplete, func(s *script) {
			s.lock("stable-1", bundles, "stable-1", "stable", 3)
			s.unanswered("stable-1", bundles)
		}, "goes from 1 transitions to 3"},
		"a hole of two, with one write that was not answered": {Incomplete, func(s *script) {
			s.unanswered("stable-1", bundles)
			s.lock("stable-1", bundles, "stable-1", "stable", 4)
		}, "goes from 1 transitions to 4"},
		"two holes, with one write that was not answered": {Incomplete, func(s *script) {
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
				t.Errorf("want one of %s with %q: %v", test.rule, test.want, err)
			}
		})
	}
}

func TestAnEmptyLogAcquitsNobody(t *testing.T) {
	v := newScript(t).judged(config())
	if err := v.Err(); len(v.Violations) != 2 || !strings.Contains(err.Error(), "nobody wrote what bundles guards") ||
		!strings.Contains(err.Error(), "never a default revision") {
		t.Error(err)
	}
}

func TestFailedRequestsAreConvicted(t *testing.T) {
	c := config()
	c.Requests = Requests{Sent: 10, Failed: 1, Drain: 5 * time.Second, Why: []string{"refused"}}
	if err := begun(t).judged(c).Err(); err == nil || !strings.Contains(err.Error(), "requests: 1 of 10 failed, with a drain of 5s: refused") {
		t.Error(err)
	}
}

// What a peer's elector writes late is counted all the same.
func TestPeersAreMeasuredNotConvicted(t *testing.T) {
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

// Versions order, time stamps do not: a log whose stamps all go backwards says the same.
func TestTimeStampsOrderNothing(t *testing.T) {
	for name, step := range map[string]time.Duration{"as it was": time.Second, "backwards": -time.Second, "all at once": 0} {
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

// The lines of several servers' logs come in any order.
func TestLogsOfSeveralServersAreOne(t *testing.T) {
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
	// The deletion stands between the two objects of one name, by the first one's last version.
	for i, w := range h.Writes {
		if w.Deleted && (h.Writes[i-1].UID != w.UID || h.Writes[i+1].Name != "bundle") {
			t.Errorf("the deletion comes after %v and before %v", h.Writes[i-1], h.Writes[i+1])
		}
	}
}

// A server that was killed leaves a request without an answer, and maybe half a line.
func TestWhatAServerDidNotLogToTheEnd(t *testing.T) {
	s := begun(t)
	s.log(request{verb: "patch", resource: "configmaps", namespace: "shop", name: "bundle", who: "stable-1", stage: stageReceived})
	s.lines.WriteString(`{"auditID": "half`)
	v := s.judged(config())
	if err := v.Err(); err != nil || v.Unanswered != 1 {
		t.Errorf("%d unanswered: %v", v.Unanswered, err)
	}
	half := `{"kind":"Event","auditID":"a","requestObj{"kind":"Event","auditID":"b"}` + "\n"
	if events, err := Read(strings.NewReader(half)); err != nil || len(events) != 1 || events[0].AuditID != "b" {
		t.Errorf("half a line before a whole one: %v, %v", events, err)
	}
	if _, err := Read(strings.NewReader("{\n{}\n")); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("a broken line in the middle: %v", err)
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
		"median 0s, p99 3s, of 2 flips (1 overtaken by the next)", "terms: 2; nobody led for 1s at most (bundles, handed over by stable-1)",
		"guarded writes: 3 to 2 objects, 1.5 each, 2 at most (configmaps a/bundle)",
		"not as wanted (bundle, created): 2 times, 2s at most (a/a: it is missing, during: flip)",
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
			t.Errorf("the quantile %v of 1 to 100 is %d", part, got)
		}
	}
	if Quantile(nil, 0.5) != 0 {
		t.Error("nothing has a median")
	}
}
