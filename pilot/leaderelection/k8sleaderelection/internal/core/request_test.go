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
		"it renews":                       {was, with(newer, renewed), nil, 2, 7},
		"it renews after a pause":         {was, with(newer, renewed), nil, 9, 9},
		"a label":                         {was, with(newer), nil, 2, 5},
		"in the same version":             {was, with(renewed), nil, 2, 7},
		"in an older state":               {was, with(older, renewed), nil, 2, 0},
		"asked later than seen":           {was, with(newer, renewed), func(s *State) { s.Since.Request = seconds(1) }, 2, 6},
		"seen later than asked":           {was, with(newer, renewed), func(s *State) { s.Since.Request, s.Since.Record = seconds(-3), seconds(1) }, 2, 6},
		"asked again meanwhile":           {was, with(newer, renewed, asked(func(r *Request) { r.Seconds = 31 })), nil, 2, 5},
		"it refuses":                      {was, with(newer, renewed, asked(func(r *Request) { r.Refused = refusedNoRank })), nil, 2, 0},
		"it accepts":                      {was, with(newer, renewed, accept), nil, 2, 0},
		"it has accepted":                 {with(accept), with(newer, renewed, accept), nil, 2, 7},
		"it has accepted another's":       {with(others, accept), with(newer, renewed, others, accept), nil, 2, 7},
		"another has asked":               {with(others), with(newer, renewed, others), nil, 2, 5},
		"the request has run out":         {was, with(newer, renewed), func(s *State) { s.Since.Request = seconds(-30) }, 2, 5},
		"another was asked, who refused":  {with(astray), with(newer, renewed, astray), nil, 2, 5},
		"another holder":                  {was, with(newer, to("c", 4), marked("c", 4)), nil, 2, 0},
		"another term of its own":         {was, with(newer, to("b", 4), marked("b", 4)), nil, 2, 0},
		"another, of the same number":     {was, with(newer, renewed, func(s *Snapshot) { s.Record.Acquired = s.Record.Renewed }), nil, 2, 0},
		"another, by its old marker":      {was, with(newer, to("b", 4)), nil, 2, 0},
		"it took its marker back":         {was, with(newer, renewed, marked("", 0)), nil, 2, 0},
		"it has another marker":           {was, with(newer, renewed, func(s *Snapshot) { s.Annotations.Marker.Unfit = true }), nil, 2, 0},
		"the lock was made anew":          {was, with(newer, renewed, anew), nil, 2, 0},
		"it was no leader of ours before": {with(marked("c", 2)), with(newer, renewed, marked("c", 2)), nil, 2, 0},
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

// A holder that ignored requests for longer than a lease is not asked again and counts as a peer. After accepting it also has its StopLimit.
func TestIgnoresRequests(t *testing.T) {
	c := testConfig() // lease 15 s, StopLimit 30 s
	accepted := func(s *Snapshot) {
		s.Annotations.Request = Request{Identity: "c", Key: "canary", Holder: "b", Transitions: 3, Accepted: true}
	}
	for name, x := range map[string]struct {
		lock Snapshot
		mute time.Duration // beyond this
	}{
		"a holder":                   {lock("lower, hands over"), 15 * time.Second},
		"of a longer lease":          {lock("lower, hands over", func(s *Snapshot) { s.Record.Lease = 40 * time.Second }), 40 * time.Second},
		"that has accepted":          {lock("lower, hands over", accepted), 45 * time.Second},
		"that accepted another time": {lock("lower, hands over", accepted, asked(func(r *Request) { r.Transitions = 2 })), 15 * time.Second},
		"that is asked":              {lock("lower, hands over", accepted, asked(func(r *Request) { r.Accepted = false })), 15 * time.Second},
	} {
		s := seenAt(0, x.lock)
		for more, want := range map[time.Duration]bool{0: false, 1: true} {
			s.Requesting.Ignored = x.mute + more
			grace := map[bool]time.Duration{true: c.PeerGrace}[want]
			if c.ignoresRequests(s) != want || c.acceptsRequests(s) == want || c.mayActUntil(s) != c.ExpiresAt(s).After(grace) {
				t.Errorf("%s, without an answer for %v: mute %v, can be asked %v, may act for %v",
					name, s.Requesting.Ignored, c.ignoresRequests(s), c.acceptsRequests(s), testNow.Mono.Until(c.mayActUntil(s)))
			}
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
		"nothing was done":          {plain, plain, false},
		"refused":                   {plain, refused, false},
		"accepted":                  {plain, accepted, false},
		"accepted after a refusal":  {refused, accepted, false},
		"asked again":               {refused, plain, true},
		"asked for longer":          {plain, longer, true},
		"refused, asked for longer": {refused, longer, true},
		"the first":                 {Request{}, plain, true},
	} {
		if got := c.now.renewed(c.old); got != c.want {
			t.Errorf("%s: renewed: %v", name, got)
		}
	}
}

func TestMayAsk(t *testing.T) {
	unfit := func(s *State) { s.Unfit = true }
	handsOver := func(s *Snapshot) { s.Annotations.Marker.Handover = true }
	for name, c := range map[string]struct {
		lock   Snapshot
		key    string
		change func(*State)
		want   bool
	}{
		"higher":                              {lock("lower, hands over"), "stable", nil, true},
		"equal":                               {lock("lower, hands over"), "canary", nil, false},
		"higher, and unfit":                   {lock("lower, hands over"), "stable", unfit, false},
		"of one that hands nothing over":      {lock("lower"), "stable", nil, false},
		"of one's own":                        {lock("mine", handsOver, func(s *Snapshot) { s.Record.Key = "canary" }), "stable", nil, false},
		"against a hold":                      {lock("lower, held"), "stable", nil, false},
		"when the hold ends":                  {lock("lower, held"), "stable", func(s *State) { s.Since.Hold -= Instant(10 * time.Second) }, true},
		"of one that is unfit":                {lock("equal, unfit"), "canary", nil, true},
		"of one that is unfit, as one is too": {lock("equal, unfit"), "canary", unfit, false},
	} {
		config := testConfig()
		config.Key = c.key
		s := seenAt(0, c.lock)
		if c.change != nil {
			c.change(&s)
		}
		if got := config.mayRequest(s, testNow.Mono); got != c.want {
			t.Errorf("%s: may ask: %v", name, got)
		}
	}
}

// A challenger waits while its own request, an operator request or a request of equal rank is pending.
func TestAskAt(t *testing.T) {
	with := func(change func(*Request)) Snapshot {
		return lock("lower, hands over", func(s *Snapshot) {
			s.Annotations.Request = Request{Identity: "c", Key: "canary", Holder: "b", Transitions: 3, Seconds: 9}
			change(&s.Annotations.Request)
		})
	}
	const runsOut, own = 9, 4
	for name, c := range map[string]struct {
		lock Snapshot
		key  string
		wait int
	}{
		"none":                         {lock("lower, hands over"), "stable", own},
		"a lower one's":                {with(func(*Request) {}), "stable", own},
		"an equal one's":               {with(func(*Request) {}), "canary", runsOut},
		"one's own":                    {with(func(r *Request) { r.Identity, r.Key = "a", "stable" }), "stable", runsOut},
		"one's own of another rank":    {with(func(r *Request) { r.Identity = "a" }), "stable", runsOut},
		"an operator's":                {with(func(r *Request) { r.Reason = ForOperator }), "stable", runsOut},
		"without rank":                 {with(func(r *Request) { r.Key = "^x" }), "x", runsOut},
		"refused":                      {with(func(r *Request) { r.Refused = refusedNoRank }), "canary", own},
		"accepted, of an equal one":    {with(func(r *Request) { r.Accepted = true }), "canary", -1},
		"accepted, of a lower one":     {with(func(r *Request) { r.Accepted = true }), "stable", own},
		"accepted, but not its term's": {with(func(r *Request) { r.Accepted, r.Transitions = true, 2 }), "canary", own},
	} {
		config := testConfig()
		config.Key, config.Ranked = c.key, c.key != "x"
		s := seenAt(0, c.lock)
		s.Requesting.NotBefore = seconds(own)
		want := Never
		if c.wait >= 0 {
			want = seconds(float64(c.wait))
		}
		if got := config.requestTime(s, testNow.Mono); got != want {
			t.Errorf("%s: asks in %v, want in %v", name, testNow.Mono.Until(got), testNow.Mono.Until(want))
		}
	}
}

func TestRequestContent(t *testing.T) {
	for name, c := range map[string]struct {
		key, theirs, reason string
	}{
		"the default revision": {"stable", "canary", ForDefaultRevision},
		"a local one":          {"stable", "^stable", ForLocalOverRemote},
		"who does not outrank": {"canary", "canary", ForUnfit},
	} {
		config := testConfig()
		config.Key = c.key
		s := seenAt(0, lock("lower, hands over", func(s *Snapshot) { s.Record.Key = c.theirs }))
		s.Requesting.Count = 2
		want := Request{
			Identity: "a", Key: c.key, Reason: c.reason, Requester: "a", Holder: "b", Transitions: 3,
			Seconds: 4 + 2, // two RetryPeriods, and another number each time
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
	local := change(func(r *Request) { r.Key = "stable" })
	for name, c := range map[string]struct {
		lock   Snapshot // its request waits for 15 s
		age    int
		config func(*Config, *State)
		accept bool
		refuse string
		again  float64 // -1: never
	}{
		"without rank, at first":   {lock("mine, asked"), 0, nil, false, "", 1},
		"without rank":             {lock("mine, asked"), 1, nil, false, refusedNoRank, 0},
		"with rank":                {lock("mine, asked", higher), 0, nil, true, "", 0},
		"against a hold":           {lock("mine, asked", higher, held), 9, nil, false, refusedHeld, 0},
		"without rank, at its end": {lock("mine, asked", held), 10, nil, false, refusedNoRank, 0},
		"when the hold ends":       {lock("mine, asked", higher, held), 10, nil, true, "", 0},
		"of nobody's term":         {lock("mine, asked", higher, to("a", 4)), 0, nil, false, "", -1},
		"run out":                  {lock("mine, asked", higher), 15, nil, false, "", -1},
		"accepted already":         {lock("mine, accepted", higher), 0, nil, false, "", -1},
		"refused already":          {lock("mine, asked", change(func(r *Request) { r.Refused = refusedNoRank })), 5, nil, false, "", -1},
		"refused, now with rank":   {lock("mine, asked", higher, change(func(r *Request) { r.Refused = refusedNoRank })), 5, nil, true, "", 0},
		"an operator's":            {lock("mine, to transfer", held), 0, nil, true, "", 0},
		"of one that is unfit":     {lock("mine, asked", held), 0, func(_ *Config, s *State) { s.Unfit = true }, true, "", 0},
		"where there are no ranks": {lock("mine, asked", local), 1, func(c *Config, _ *State) { c.Ranked, c.Key = false, "^stable" }, false, refusedNoRank, 0},
		"a local one":              {lock("mine, asked", local), 1, func(c *Config, _ *State) { c.Key = "^stable" }, true, "", 0},
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

// A leader that handed over does not campaign for this time.
func TestCoolDown(t *testing.T) {
	for name, c := range map[string]struct {
		lock    string
		seconds int
		unfit   bool
		want    time.Duration
	}{
		"a higher rank's":             {"mine, asked", 0, false, 0},
		"while unfit":                 {"mine, asked", 0, true, 2 * time.Second},
		"an operator's transfer":      {"mine, to transfer", 60, false, 0},
		"an operator's order":         {"mine, to step down", 60, false, time.Minute},
		"of less than a RetryPeriod":  {"mine, to step down", 1, false, 2 * time.Second},
		"of no time":                  {"mine, to step down", -5, false, 2 * time.Second},
		"of more than can be said":    {"mine, to step down", 1 << 40, false, 7 * 24 * time.Hour},
		"an operator's, while unfit":  {"mine, to step down", 60, true, time.Minute},
		"nobody's, which is no order": {"mine, asked", -1, false, 0},
	} {
		s := seenAt(0, lock(c.lock, asked(func(r *Request) {
			if r.HoldSeconds = c.seconds; c.seconds < 0 && r.Reason != ForOperator {
				r.Identity = ""
			}
		})))
		s.Unfit = c.unfit
		if got := testConfig().coolDown(s); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// The writes of a term keep its hold until it ends.
func TestKeptHold(t *testing.T) {
	held := lock("mine, asked, held") // for 10 s
	for name, c := range map[string]struct {
		age         int
		transitions int
		want        Hold
	}{
		"stands":          {9, 3, held.Annotations.Hold},
		"has run out":     {10, 3, Hold{}},
		"of another term": {0, 4, Hold{}},
	} {
		record := held.Record
		record.Transitions = c.transitions
		if got := seenAt(c.age, held).activeHold(record, testNow.Mono); got != c.want {
			t.Errorf("%s: %+v", name, got)
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
			t.Fatalf("request %d: the next one after %v", i+1, testNow.Mono.Until(s.Requesting.NotBefore))
		}
		if c.request(s) == before {
			t.Fatalf("request %d is as the one before", i+2)
		}
	}
}
