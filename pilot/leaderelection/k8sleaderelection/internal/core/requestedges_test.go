package core

import (
	"testing"
	"time"
)

// seenAt is a state that saw the lock, its request and its hold n seconds before testNow,
// and knows that stable is the default.
func seenAt(n int, snap Snapshot) State {
	at := testNow.Mono - Instant(time.Duration(n)*time.Second)
	return State{
		Known: Current, Watch: true, Snap: snap, Since: Since{Record: at, Request: at, Hold: at},
		Default: DefaultRevision{Synced: true, Revision: "stable"}, PollAt: Never,
	}
}

// asked changes the request that stands.
func asked(change func(*Request)) func(*Snapshot) {
	return func(s *Snapshot) { change(&s.Notes.Request) }
}

// A request is renewed by its challenger, not by what its leader notes on it.
func TestWhatRenewsARequest(t *testing.T) {
	plain := lock("mine, asked").Notes.Request
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

// A request is heeded until it has run out, and one that was accepted for as long as its
// term lasts.
func TestUntilWhenARequestStands(t *testing.T) {
	refuse, accept := asked(func(r *Request) { r.Refused = refusedNoRank }), asked(func(r *Request) { r.Accepted = true })
	for name, c := range map[string]struct {
		lock Snapshot // its request waits for 15 s
		age  int
		want bool
	}{
		"just asked":               {lock("mine, asked"), 0, true},
		"almost run out":           {lock("mine, asked"), 14, true},
		"run out":                  {lock("mine, asked"), 15, false},
		"refused":                  {lock("mine, asked", refuse), 0, false},
		"accepted, long ago":       {lock("mine, asked", accept), 500, true},
		"accepted in another term": {lock("mine, asked", accept, to("a", 4)), 0, false},
		"of another term":          {lock("mine, asked", to("a", 4)), 0, false},
	} {
		if got := seenAt(c.age, c.lock).requested(testNow.Mono); got != c.want {
			t.Errorf("%s: stands: %v", name, got)
		}
	}
}

// Who may ask a leader to hand over: whoever outranks it, and anybody one that is unfit.
func TestWhoMayAsk(t *testing.T) {
	unfit := func(s *State) { s.Unfit = true }
	handsOver := func(s *Snapshot) { s.Notes.Marker.Handover = true }
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
		if got := config.mayAsk(s, testNow.Mono); got != c.want {
			t.Errorf("%s: may ask: %v", name, got)
		}
	}
}

// From when on one asks although a request stands: not while it is one's own, an operator's,
// or that of somebody whom one does not outrank.
func TestWhoseRequestIsWaitedFor(t *testing.T) {
	with := func(change func(*Request)) Snapshot {
		return lock("lower, hands over", func(s *Snapshot) {
			s.Notes.Request = Request{Identity: "c", Key: "canary", Holder: "b", Transitions: 3, Seconds: 9}
			change(&s.Notes.Request)
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
		s.Asking.NotBefore = seconds(own)
		want := Never
		if c.wait >= 0 {
			want = seconds(float64(c.wait))
		}
		if got := config.askAt(s, testNow.Mono); got != want {
			t.Errorf("%s: asks in %v, want in %v", name, testNow.Mono.Until(got), testNow.Mono.Until(want))
		}
	}
}

// What a request says of itself.
func TestWhatIsAsked(t *testing.T) {
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
		s.Asking.Count = 2
		want := Request{
			Identity: "a", Key: c.key, Reason: c.reason, Requester: "a", Holder: "b", Transitions: 3,
			Seconds: 4 + 2, // two RetryPeriods, and another number each time
		}
		if got := config.request(s); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// What a leader makes of a request.
func TestHowARequestIsJudged(t *testing.T) {
	change := func(f func(*Request)) func(*Snapshot) { return asked(f) }
	higher := change(func(r *Request) { r.Key = "best" })
	held := func(s *Snapshot) { s.Notes.Hold = Hold{Holder: "a", Transitions: 3, Seconds: 10} }
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

// For how long one that has handed over does not campaign.
func TestHowLongOneStaysAwayAfterARequest(t *testing.T) {
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

// Whether the lock that is given up goes to the challenger.
func TestToWhomTheLockIsPassedOn(t *testing.T) {
	ours := func(s *State) {
		s.Term, s.Own.Stamps[0] = Term{UID: UID{First: "u"}, Transitions: 3, Token: 15}, 7e6
	}
	for name, c := range map[string]struct {
		lock   Snapshot
		age    int
		change func(*State)
		want   bool
	}{
		"accepted":                   {lock("mine, accepted"), 0, ours, true},
		"with rank, not accepted":    {lock("mine, asked", asked(func(r *Request) { r.Key = "stable" })), 0, ours, true},
		"without rank, not accepted": {lock("mine, asked"), 0, ours, false},
		"run out":                    {lock("mine, asked", asked(func(r *Request) { r.Key = "stable" })), 15, ours, false},
		"of another term":            {lock("mine, accepted", asked(func(r *Request) { r.Transitions = 2 })), 0, ours, false},
		"of a lock not ours":         {lock("mine, accepted"), 0, func(*State) {}, false},
		"an operator's, to nobody":   {lock("mine, to step down"), 0, ours, false},
	} {
		config := testConfig()
		config.Key = "canary"
		s := seenAt(c.age, c.lock)
		c.change(&s)
		if got := config.fulfils(s, testNow.Mono); got != c.want {
			t.Errorf("%s: passed on: %v", name, got)
		}
	}
}

// A hold goes on with its term's writes until it has run out.
func TestWhichHoldIsKept(t *testing.T) {
	held := lock("mine, asked, held") // for 10 s
	for name, c := range map[string]struct {
		age         int
		transitions int
		want        Hold
	}{
		"stands":          {9, 3, held.Notes.Hold},
		"has run out":     {10, 3, Hold{}},
		"of another term": {0, 4, Hold{}},
	} {
		record := held.Record
		record.Transitions = c.transitions
		if got := seenAt(c.age, held).keptHold(record, testNow.Mono); got != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// The back-off of requests stays what it has become, however many there were; and none is as the one before.
func TestManyRequestsInARow(t *testing.T) {
	c, s := testConfig(), follower(testConfig(), lock("lower"), "canary")
	for i := range 600 {
		before := c.request(s)
		s = c.sent(s, Action{Op: Ask}, testNow)
		s.Flight = Call{}
		if want := testNow.Mono.After(min(c.Lease, c.Retry<<min(i, maxBackOffShift))); s.Asking.NotBefore != want {
			t.Fatalf("request %d: the next one after %v", i+1, testNow.Mono.Until(s.Asking.NotBefore))
		}
		if c.request(s) == before {
			t.Fatalf("request %d is as the one before", i+2)
		}
	}
}
