package core

import (
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
		if got := config.request(s); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
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
		accept, refuse, again := config.judge(s, testNow.Mono)
		if accept != c.accept || refuse != c.refuse || again != c.again {
			t.Errorf("%s: accept %v, refuse %q, look again in %v", name, accept, refuse, testNow.Mono.Until(again))
		}
	}
}
