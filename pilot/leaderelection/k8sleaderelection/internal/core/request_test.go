package core

import (
	"testing"
	"time"
)

// Only a challenger renews a request.
func TestRequestRenewed(t *testing.T) {
	plain := lock("mine, asked").Annotations.Request
	refused, accepted, longer := plain, plain, plain
	refused.Refused, accepted.Accepted, longer.Seconds = refusedNoRank, true, 16
	for name, c := range map[string]struct {
		old, now Request
		want     bool
	}{
		"unchanged":                {plain, plain, false},
		"refused":                  {plain, refused, false},
		"accepted":                 {plain, accepted, false},
		"accepted after a refusal": {refused, accepted, false},
		"requested again":          {refused, plain, true},
		"longer duration":          {plain, longer, true},
		"refused, longer duration": {refused, longer, true},
		"the first":                {Request{}, plain, true},
	} {
		if got := c.now.renewed(c.old); got != c.want {
			t.Errorf("%s: renewed: %v", name, got)
		}
	}
}

func TestRequestContent(t *testing.T) {
	for name, c := range map[string]struct {
		key, theirs, reason string
	}{
		"default revision": {"stable", "canary", ForDefaultRevision},
		"local":            {"stable", "^stable", ForLocalOverRemote},
		"no rank":          {"canary", "canary", ForUnfit},
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
	change := func(f func(*Request)) func(*Snapshot) { return asked(f) }
	higher := change(func(r *Request) { r.Key = "best" })
	held := func(s *Snapshot) { s.Annotations.Hold = Hold{Holder: "a", Transitions: 3, Seconds: 10} }
	failed := func(_ *Config, s *State) { s.Failed = FailedNominees{Names: [4]string{"b"}, Until: seconds(1)} }
	local := change(func(r *Request) { r.Key = "stable" })
	for name, c := range map[string]struct {
		lock   Snapshot // its request expires after 15 s
		age    int
		config func(*Config, *State)
		accept bool
		refuse string
		again  float64 // -1: never
	}{
		"no rank, at first":      {lock("mine, asked"), 0, nil, false, "", 1},
		"no rank":                {lock("mine, asked"), 1, nil, false, refusedNoRank, 0},
		"rank":                   {lock("mine, asked", higher), 0, nil, true, "", 0},
		"hold":                   {lock("mine, asked", higher, held), 9, nil, false, refusedHeld, 0},
		"no rank, hold ends":     {lock("mine, asked", held), 10, nil, false, refusedNoRank, 0},
		"hold ends now":          {lock("mine, asked", higher, held), 10, nil, true, "", 0},
		"other term":             {lock("mine, asked", higher, to("a", 4)), 0, nil, false, "", -1},
		"expired":                {lock("mine, asked", higher), 15, nil, false, "", -1},
		"accepted already":       {lock("mine, accepted", higher), 0, nil, false, "", -1},
		"refused already":        {lock("mine, asked", change(func(r *Request) { r.Refused = refusedNoRank })), 5, nil, false, "", -1},
		"refused, now with rank": {lock("mine, asked", higher, change(func(r *Request) { r.Refused = refusedNoRank })), 5, nil, true, "", 0},
		"operator":               {lock("mine, to transfer", held), 0, nil, true, "", 0},
		"failed before":          {lock("mine, asked", higher), 0, failed, false, refusedFailed, 0},
		"failed before, unfit":   {lock("mine, asked", held), 0, func(c *Config, s *State) { failed(c, s); s.Unfit = true }, false, refusedFailed, 0},
		"operator after failure": {lock("mine, to transfer"), 0, failed, true, "", 0},
		"unfit":                  {lock("mine, asked", held), 0, func(_ *Config, s *State) { s.Unfit = true }, true, "", 0},
		"unranked":               {lock("mine, asked", local), 1, func(c *Config, _ *State) { c.Ranked, c.Key = false, "^stable" }, false, refusedNoRank, 0},
		"local":                  {lock("mine, asked", local), 1, func(c *Config, _ *State) { c.Key = "^stable" }, true, "", 0},
	} {
		config := testConfig()
		config.Patience = time.Second
		s := seenAt(c.age, c.lock)
		s.Default.Revision = "best"
		if c.config != nil {
			c.config(&config, &s)
		}
		want := Never
		if c.again >= 0 {
			want = seconds(c.again)
		}
		accept, refuse, again := config.judge(s, testNow.Mono)
		if accept != c.accept || refuse != c.refuse || again != want {
			t.Errorf("%s: accept %v, refuse %q, look again in %v", name, accept, refuse, testNow.Mono.Until(again))
		}
	}
}
