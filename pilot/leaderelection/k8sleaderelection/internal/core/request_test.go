package core

import (
	"testing"
	"time"
)

// The holder has ignored requests for 5 s. Request and record were seen at testNow, and again 2 s later.
func TestCountIgnored(t *testing.T) {
	c := testConfig()
	request := Request{Identity: "a", Key: "stable", Holder: "b", Transitions: 3, Seconds: 30}
	was := lock("lower, hands over", func(s *Snapshot) { s.Annotations.Request = request })
	accept := asked(func(r *Request) { r.Accepted = true })
	others := asked(func(r *Request) { r.Identity = "c" })
	astray := asked(func(r *Request) { r.Holder, r.Refused = "c", refusedNoRank })
	with := func(changes ...func(*Snapshot)) Snapshot {
		s := was
		for _, change := range changes {
			change(&s)
		}
		return s
	}
	for name, x := range map[string]struct {
		was, next Snapshot
		state     func(*State)
		after     float64
		want      time.Duration
	}{
		"renews":                         {was, with(newer, renewed), nil, 2, 7},
		"renews after a pause":           {was, with(newer, renewed), nil, 9, 9},
		"a label":                        {was, with(newer), nil, 2, 5},
		"in an older state":              {was, with(older, renewed), nil, 2, 0},
		"requested after the record":     {was, with(newer, renewed), func(s *State) { s.Since.Request = seconds(1) }, 2, 6},
		"record after the request":       {was, with(newer, renewed), func(s *State) { s.Since.Request, s.Since.Record = seconds(-3), seconds(1) }, 2, 6},
		"requested again":                {was, with(newer, renewed, asked(func(r *Request) { r.Seconds = 31 })), nil, 2, 5},
		"refuses":                        {was, with(newer, renewed, asked(func(r *Request) { r.Refused = refusedNoRank })), nil, 2, 0},
		"accepts":                        {was, with(newer, renewed, accept), nil, 2, 0},
		"has accepted":                   {with(accept), with(newer, renewed, accept), nil, 2, 7},
		"has accepted another":           {with(others, accept), with(newer, renewed, others, accept), nil, 2, 7},
		"request of another":             {with(others), with(newer, renewed, others), nil, 2, 5},
		"request expired":                {was, with(newer, renewed), func(s *State) { s.Since.Request = seconds(-30) }, 2, 5},
		"refused by another holder":      {with(astray), with(newer, renewed, astray), nil, 2, 5},
		"another holder":                 {was, with(newer, to("c", 4), marked("c", 4)), nil, 2, 0},
		"another own term":               {was, with(newer, to("b", 4), marked("b", 4)), nil, 2, 0},
		"another term, same number":      {was, with(newer, renewed, func(s *Snapshot) { s.Record.Acquired = s.Record.Renewed }), nil, 2, 0},
		"marker removed":                 {was, with(newer, renewed, marked("", 0)), nil, 2, 0},
		"marker changed":                 {was, with(newer, renewed, func(s *Snapshot) { s.Annotations.Marker.Unfit = true }), nil, 2, 0},
		"recreated":                      {was, with(newer, renewed, recreation), nil, 2, 0},
		"not an incumbent leader before": {with(marked("c", 2)), with(newer, renewed, marked("c", 2)), nil, 2, 0},
	} {
		s := seenAt(0, x.was)
		if s.Requesting.Ignored = 5 * time.Second; x.state != nil {
			x.state(&s)
		}
		if got := c.observe(s, later(x.after, x.next)).Requesting.Ignored; got != x.want*time.Second {
			t.Errorf("%s: for %v, want %v", name, got, x.want*time.Second)
		}
	}
}

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

// A leader that handed over does not campaign for this time: at least RetryPeriod, at most seven days.
func TestCoolDown(t *testing.T) {
	for name, c := range map[string]struct {
		lock    string
		seconds int
		unfit   bool
		want    time.Duration
	}{
		"higher rank":      {"mine, asked", 0, false, 0},
		"unfit":            {"mine, asked", 0, true, 2 * time.Second},
		"transfer":         {"mine, to transfer", 60, false, 0},
		"step-down":        {"mine, to step down", 60, false, time.Minute},
		"negative":         {"mine, to step down", -5, false, 2 * time.Second},
		"too long":         {"mine, to step down", 1 << 40, false, 7 * 24 * time.Hour},
		"step-down, unfit": {"mine, to step down", 60, true, time.Minute},
	} {
		s := seenAt(0, lock(c.lock, asked(func(r *Request) { r.HoldSeconds = c.seconds })))
		s.Unfit = c.unfit
		if got := testConfig().coolDown(s); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// Requests back off up to a lease, and each differs from the one before.
func TestRequests_BackOff(t *testing.T) {
	c, s := testConfig(), follower(testConfig(), lock("lower"), "canary")
	for i := range 600 {
		before := c.request(s)
		s = c.sent(s, Action{Op: SendRequest}, testNow)
		s.Flight = Call{}
		if want := testNow.Mono.After(min(c.Lease, c.Retry<<min(i, maxBackOffShift))); s.Requesting.NotBefore != want {
			t.Fatalf("request %d: next one after %v", i+1, testNow.Mono.Until(s.Requesting.NotBefore))
		}
		if c.request(s) == before {
			t.Fatalf("request %d equals the previous one", i+2)
		}
	}
}
