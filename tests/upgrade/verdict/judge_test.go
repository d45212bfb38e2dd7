package verdict

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// begun is the start of each log: stable is the default revision, leads, and has served a namespace.
func begun(t *testing.T) *script {
	s := newScript(t)
	s.play("flip stable; lock stable-1 stable-1 1; space shop; bundle stable-1 shop right")
	return s
}

const flipped = "flip canary; lock stable-1 canary-1 2; lock canary-1 canary-1 2; "

func TestJudge_CorrectLog(t *testing.T) {
	for name, play := range map[string]string{
		"a flip": flipped + "space more; bundle canary-1 more right",
		"two flips, and repairs by both leaders": flipped + "bundle admin shop wrong; bundle canary-1 shop right; " +
			"flip stable; lock canary-1 stable-1 3; lock stable-1 stable-1 3; bundle admin shop wrong; bundle stable-1 shop right",
		"renewals between writes": "lock stable-1 stable-1 1; space more; bundle stable-1 more right; lock stable-1 stable-1 1; space more; bundle stable-1 more right",
		"a release":               "lock stable-1 - 1; lock stable-2 stable-2 2; bundle admin shop wrong; bundle stable-2 shop right",
		"a handover request does not end the term": "lock canary-1 stable-1 1; bundle admin shop wrong; bundle stable-1 shop right",
		"a deleted lock": "remove leases istio-system bundles; bundle admin shop wrong; bundle stable-1 shop right; lock stable-1 stable-1 1",
		"a terminating namespace without a bundle":   "space brief; terminate brief",
		"a deleted and recreated object":             "remove configmaps shop bundle; bundle stable-1 shop right",
		"a term that began with an unanswered write": "lock stable-1 - 1; unanswered stable-2 bundles; lock stable-2 stable-2 3; bundle admin shop wrong; bundle stable-2 shop right",
	} {
		t.Run(name, func(t *testing.T) {
			s := begun(t)
			s.play(play)
			if err := s.judged(config()).Err(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("rejected, dry-run and empty writes", func(t *testing.T) {
		s := begun(t)
		patch := request{verb: "patch", resource: "configmaps", namespace: "shop", name: "bundle", who: "canary-1", code: 200, stage: stageComplete}
		rejected := patch
		rejected.code = 403
		dry := patch
		dry.dry = true
		same := patch
		same.from = "4"
		same.object = fields{"metadata": fields{"uid": s.uids[key("configmaps", "shop", "bundle")], "resourceVersion": "4"}}
		for _, r := range []request{rejected, dry, same} {
			s.log(r)
		}
		events, err := Read(&s.lines)
		if err != nil {
			t.Fatal(err)
		}
		slices.Reverse(events) // the empty write comes before the write that it repeats
		h, err := Order(events)
		if err != nil {
			t.Fatal(err)
		}
		if err := Judge(h, config()).Err(); err != nil {
			t.Error(err)
		}
	})
}

// Each log violates one rule once.
func TestJudge_Violation(t *testing.T) {
	for name, test := range map[string]struct {
		rule       Rule
		play, want string
	}{
		"a Pod without a term": {Unelected, "bundle admin shop wrong; bundle stable-2 shop right",
			"patch by stable-2 of configmaps shop/bundle at 6, without a term of bundles"},
		"before the term":                 {Unelected, "bundle canary-1 shop right; " + flipped, "canary-1"},
		"nominated, before its own write": {Unelected, "flip canary; lock stable-1 canary-1 2; bundle canary-1 shop right; lock canary-1 canary-1 2", "canary-1"},
		"after a write of the next term": {Interleaved, flipped + "space a; bundle canary-1 a right; space b; bundle stable-1 b right",
			"patch by stable-1 of configmaps b/bundle"},
		"after the next term began": {Late, flipped + "bundle stable-1 shop right", "the term of canary-1 began at 7"},
		"after the release":         {Late, "lock stable-1 - 1; bundle stable-1 shop right", "its term was released at 5"},
		"after the handover":        {Late, "flip canary; lock stable-1 canary-1 2; bundle stable-1 shop right; lock canary-1 canary-1 2", "handed over at 6"},
		"written back": {Returned, flipped + "bundle canary-1 shop other; lock canary-1 stable-1 3; lock stable-1 stable-1 3; bundle stable-1 shop right",
			"although the default revision did not return to stable"},
		"written back before the flip": {Returned, flipped + "bundle canary-1 shop right2; lock canary-1 stable-1 3; lock stable-1 stable-1 3; " +
			"bundle stable-1 shop right; flip stable; flip canary", "did not return to stable"},
		"missing at the end":                            {Unwanted, "space late", "bundle late/late at the end: it is missing"},
		"wrong at the end":                              {Unwanted, "bundle admin shop wrong", "it has other content"},
		"deleted at the end":                            {Unwanted, "remove configmaps shop bundle", "it is missing"},
		"a gap in the log of the lock":                  {Incomplete, "lock stable-1 stable-1 3", "goes from 1 transitions to 3"},
		"a gap and an unanswered write of another lock": {Incomplete, "unanswered stable-1 other; lock stable-1 stable-1 3", "goes from 1 transitions to 3"},
		"a gap before an unanswered write":              {Incomplete, "lock stable-1 stable-1 3; unanswered stable-1 bundles", "goes from 1 transitions to 3"},
		"a gap of two and one unanswered write":         {Incomplete, "unanswered stable-1 bundles; lock stable-1 stable-1 4", "goes from 1 transitions to 4"},
		"two gaps and one unanswered write":             {Incomplete, "unanswered stable-1 bundles; lock stable-1 stable-1 3; lock stable-1 stable-1 5", "goes from 3 transitions to 5"},
		"transitions that fall":                         {Incomplete, "lock stable-1 stable-1 0", "goes from 1 transitions to 0"},
	} {
		t.Run(name, func(t *testing.T) {
			s := begun(t)
			s.play(test.play)
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
	s.play("flip canary; lock canary-1 canary-1 2")
	s.play("bundle stable-1 shop right2; bundle canary-1 shop right; bundle stable-1 shop right2; bundle canary-1 shop right")
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
			s.play("flip canary")
		}
		s.clock = s.clock.Add(5 * step)
		s.play("lock stable-1 canary-1 2; lock canary-1 canary-1 2")
		s.clock = s.clock.Add(7 * step)
		s.play("bundle stable-1 shop right")
		if v := s.judged(config()); len(v.Violations) != 1 || v.Violations[0].Rule != Late {
			t.Errorf("%s: %v", name, v.Err())
		}
	}
}

// The events of several API servers come in any order.
func TestOrder_SeveralLogs(t *testing.T) {
	s := begun(t)
	s.play(flipped + "space a; bundle canary-1 a right; remove configmaps a bundle; bundle canary-1 a right")
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
	s.play("flip canary")
	s.put("admin", "update", "configmaps", home, StepName, fields{"data": fields{StepKey: "flip"}})
	s.play("lock stable-1 canary-1 2; lock canary-1 canary-1 2; space a; bundle canary-1 a wrong; bundle canary-1 a right; flip stable; flip canary")
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
