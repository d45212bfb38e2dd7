package core

import (
	"slices"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/record"
)

// The answer of a leader does not renew a request.
func TestRequestRenewed_Accepted(t *testing.T) {
	refused := lock("mine, asked").Annotations.Request
	refused.Refused = refusedNoRank
	accepted := refused
	accepted.Refused, accepted.Accepted = "", true
	if accepted.Renewed(refused) {
		t.Error("an acceptance after a refusal renewed the request")
	}
}

func TestRequestContent(t *testing.T) {
	for name, c := range map[string]struct {
		key, theirs, reason string
	}{
		"default revision": {"stable", "canary", record.ForDefaultRevision},
		"local":            {"stable", "^stable", record.ForLocalOverRemote},
		"no rank":          {"canary", "canary", record.ForUnfit},
	} {
		config := testConfig()
		config.Key = c.key
		s := seenAt(0, lock("lower, hands over", func(s *Snapshot) { s.Record.Key = c.theirs }))
		s.Requesting.Count = 2
		want := Request{
			Identity: "a", Key: c.key, Reason: c.reason, Requester: "a", Holder: "b", Transitions: 3,
			Seconds: 4 + 2, // two RetryPeriods plus a different number for each request
		}
		if got := config.request(&s); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// Each of many requests in a row has another duration than the ones before it, also when the delay between them is the longest.
func TestRequestSent_Differs(t *testing.T) {
	c := testConfig()
	s := seenAt(0, lock("lower, hands over"))
	var seconds []int
	for range 40 {
		r := c.request(&s)
		if last := seconds[max(0, len(seconds)-2):]; slices.Contains(last, r.Seconds) || r.Seconds < 4 || r.Seconds > 7 {
			t.Fatalf("a request of %d s after %v", r.Seconds, seconds)
		}
		seconds = append(seconds, r.Seconds)
		s.Handover = c.requestSent(s.Handover, testNow.Mono)
	}
	if s.Requesting.NotBefore != testNow.Mono.After(c.Lease) {
		t.Errorf("the next request is possible after %v", testNow.Mono.Until(s.Requesting.NotBefore))
	}
}

func TestJudge(t *testing.T) {
	higher := asked(func(r *Request) { r.Key = "best" })
	local := asked(func(r *Request) { r.Key = "stable" })
	held := func(s *Snapshot) { s.Annotations.Hold = Hold{Holder: "a", Transitions: 3, Seconds: 10} }
	for name, c := range map[string]struct {
		lock   Snapshot // its request expires after 15 s
		age    int
		ranked bool
		accept bool
		refuse string
		again  Instant
	}{
		"hold":               {lock("mine, asked", higher, held), 9, true, false, refusedHeld, testNow.Mono},
		"no rank, hold ends": {lock("mine, asked", held), 10, true, false, refusedNoRank, testNow.Mono},
		"hold ends now":      {lock("mine, asked", higher, held), 10, true, true, "", testNow.Mono},
		"other term":         {lock("mine, asked", higher, to("a", 4)), 0, true, false, "", Never},
		"unranked":           {lock("mine, asked", local), 1, false, false, refusedNoRank, testNow.Mono},
	} {
		config := testConfig()
		config.Patience = time.Second
		if config.Ranked = c.ranked; !c.ranked {
			config.Key = "^stable"
		}
		s := seenAt(c.age, c.lock)
		s.Default.Revision = "best"
		accept, refuse, again := config.judge(&s, testNow.Mono)
		if accept != c.accept || refuse != c.refuse || again != c.again {
			t.Errorf("%s: accept %v, refuse %q, look again in %v", name, accept, refuse, testNow.Mono.Until(again))
		}
	}
}

// A leader that stops nominates a challenger only if it has accepted the request, or would accept it now.
func TestHandoverTarget(t *testing.T) {
	higher := asked(func(r *Request) { r.Key = "best" })
	accepted := asked(func(r *Request) { r.Accepted = true })
	long := asked(func(r *Request) { r.Seconds = 1 << 30 })
	for name, x := range map[string]struct {
		lock Snapshot
		age  int // seconds
		want string
	}{
		"higher rank":           {lock("mine, asked", higher), 14, "b"},
		"no rank":               {lock("mine, asked"), 0, ""},
		"no rank, accepted":     {lock("mine, asked", accepted), 20, "b"},
		"expired":               {lock("mine, asked", higher), 15, ""},
		"other term":            {lock("mine, asked", higher, asked(func(r *Request) { r.Transitions = 2 })), 0, ""},
		"seconds have a bound":  {lock("mine, asked", higher, long), int(record.MaxRequest / time.Second), ""},
		"shorter than that":     {lock("mine, asked", higher, long), int(record.MaxRequest/time.Second) - 1, "b"},
		"step-down by operator": {lock("mine, to step down"), 0, ""},
	} {
		s := ours(seenAt(x.age, x.lock), Releasing)
		s.Default.Revision = "best"
		if got := testConfig().handoverTarget(&s, testNow.Mono).Identity; got != x.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A leader does not step down for a preferred candidate that was nominated and did not acquire the lock.
func TestPrefersOther_Failed(t *testing.T) {
	c := testConfig()
	c.Coordinated = true
	s := ours(seenAt(0, lock("mine", func(s *Snapshot) { s.Strategy, s.Preferred = true, "b" })), Leading)
	s.GiveWay = true
	if !c.prefersOther(&s, testNow.Mono) || c.handoverTarget(new(ours(s, Releasing)), testNow.Mono).Identity != "b" {
		t.Error("the preference does not count")
	}
	s.Failed = FailedNominees{Names: [4]string{"b"}, Until: seconds(10)}
	if c.prefersOther(&s, testNow.Mono) || !c.prefersOther(&s, seconds(10)) {
		t.Error("the preference counts directly after a failed nomination")
	}
}

// The lease of a nomination differs from the own lease of the nominee, so that its first write changes the record.
func TestHandover_Record(t *testing.T) {
	c := testConfig()
	for name, x := range map[string]struct {
		lock Snapshot
		hold Hold
	}{
		"operator": {
			lock("mine, to transfer", asked(func(r *Request) { r.Requester, r.Note = "kubectl", "maintenance" })),
			Hold{Holder: "b", Transitions: 4, Seconds: 60, Requester: "kubectl", Reason: record.HoldForTransfer, Note: "maintenance"},
		},
		"operator, no duration": {
			lock("mine, to transfer", asked(func(r *Request) { r.HoldSeconds = 0 })),
			Hold{Holder: "b", Transitions: 4, Seconds: 1, Reason: record.HoldForTransfer},
		},
	} {
		s := ours(seenAt(0, x.lock), Releasing)
		s.Count = 3
		a := c.decide(&s, testNow)
		want := Record{Holder: "b", Key: "canary", Lease: 16 * time.Second, Acquired: nowStamp, Renewed: nowStamp, Transitions: 4}
		if a.Op != HandOver || a.Record != want || a.Annotations != (Annotations{Nominated: Nomination{Identity: "b", Transitions: 4}, Hold: x.hold}) {
			t.Errorf("%s: %s %+v with %+v", name, a.Op, a.Record, a.Annotations)
		}
	}
}

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
		if got := testConfig().failedNominees(&s, x.next, testNow.Mono); got != x.want {
			t.Errorf("%s: %+v, want %+v", name, got, x.want)
		}
	}
	full := FailedNominees{Names: [4]string{"b", "c", "d", "e"}, Until: seconds(10)}
	if now := testNow.Mono; !failed.include("c", now) || failed.include("d", now) || failed.include("b", seconds(20)) || !full.include("x", now) {
		t.Error("wrong challengers are refused")
	}
}
