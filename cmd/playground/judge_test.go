package main

import (
	"strings"
	"testing"
	"time"
)

// made is made-up evidence: the act is at second 0, the lease 6 s, the RetryPeriod 1 s.
type made struct {
	evidence
}

func newMade(former, leader string) *made {
	return &made{evidence{former: former, leader: leader, lease: 6 * time.Second, retry: time.Second}}
}

// says adds a line to a pod's log.
func (t *made) says(pod string, second float64, message, words string) *made {
	line, ok := parseLine([]byte(at(second).UTC().Format("2006-01-02T15:04:05.000000Z") + "\tinfo\tpilot\t" + message + "\telection=e " + words))
	if !ok {
		panic("a line that is none")
	}
	t.said = append(t.said, statement{pod, line})
	return t
}

func (t *made) leads(pod string, second float64, claim string) *made {
	return t.says(pod, second, saidPhase, "from=following to=leading why=acquired claim="+claim).says(pod, second, saidBegan, "")
}

// ends is a term that ends in order, up to the word for what it does next.
func (t *made) ends(pod string, second float64, why string) *made {
	return t.says(pod, second, saidPhase, "from=leading to=draining why="+why).says(pod, second, saidEnded, "")
}

func (t *made) releases(pod string, second float64, to string) *made {
	return t.says(pod, second, saidPhase, "from=draining to=releasing why=drained").
		says(pod, second, saidPhase, "from=releasing to="+to+" why=released")
}

// shows adds a state of the record, which stood until the given second.
func (t *made) shows(s recordState, first, last float64) *made {
	t.steps = append(t.steps, step{recordState: s, first: at(first), last: at(last)})
	return t
}

// of is a record of a holder's own, nominee one that another has written in.
func of(holder string, transitions int) recordState {
	return recordState{holder: holder, key: "canary", transitions: transitions, lease: 6}
}

func nominee(holder string, transitions int) recordState {
	return recordState{holder: holder, key: "canary", transitions: transitions, lease: 7, nominated: true}
}

// named is one that a coordinator has written in.
func named(holder string, transitions int) recordState {
	return recordState{holder: holder, key: "canary", transitions: transitions, lease: 5, named: true}
}

func stable(holder string, transitions int) recordState {
	s := of(holder, transitions)
	s.key = "stable"
	return s
}

func free(transitions int) recordState { return recordState{transitions: transitions, lease: 1} }

// What right acts look like.
var right = map[string]struct {
	course course
	trial  func() *made
}{
	"elect, unheard": {electedFirst, func() *made { return newMade("", "a").leads("a", 1, "own-name").shows(of("a", 0), 1, 5) }},
	"elect":          {electedFirst, func() *made { return newMade("", "a").leads("a", 1, "lock-absent").shows(of("a", 0), 1, 5) }},
	"flip": {handedOver, func() *made {
		return newMade("a", "b").ends("a", 1, "handing-over").releases("a", 1, "following").leads("b", 1.1, "nominated").
			shows(of("a", 0), -5, 0.9).shows(nominee("b", 1), 1, 1).shows(of("b", 1), 1.1, 3)
	}},
	"kill": {reclaimed, func() *made {
		return newMade("a", "a").says("a", 0.5, saidServer, "").leads("a", 1, "own-name").shows(of("a", 1), -3, -0.5).shows(of("a", 2), 1, 2)
	}},
	"kill, and the process is back too late": {reclaimed, func() *made {
		return newMade("a", "b").leads("b", 5.6, "lease-expired").says("a", 7, saidServer, "").
			shows(of("a", 1), -3, -0.5).shows(of("b", 2), 5.6, 8)
	}},
	"lose": {waitedFor, lost},
	"lose, and one of a lower rank is faster": {waitedFor, func() *made {
		return newMade("a", "b").leads("c", 6, "lease-expired").ends("c", 6.1, "handing-over").releases("c", 6.1, "following").
			leads("b", 6.2, "nominated").
			shows(of("a", 1), -3, -0.5).shows(stable("c", 2), 6, 6.1).shows(nominee("b", 3), 6.1, 6.1).shows(of("b", 3), 6.2, 8)
	}},
	"stop": {released, func() *made {
		return newMade("a", "b").ends("a", 0.1, "stopped").releases("a", 0.1, "done").says("a", 0.2, saidInOrder, "").
			leads("b", 0.2, "lock-free").shows(of("a", 1), -3, 0).shows(free(1), 0.1, 0.1).shows(of("b", 2), 0.2, 3)
	}},
	"delete": {madeAgain, func() *made {
		return newMade("a", "a").ends("a", 0.1, "lock-deleted").leads("a", 0.2, "lock-absent").
			shows(of("a", 3), -3, 0).shows(recordState{gone: true}, 0.1, 0.1).shows(of("a", 0), 0.2, 3)
	}},
	"corrupt": {outwaited, func() *made {
		return newMade("a", "b").ends("a", 0.1, "record-unreadable").leads("b", 6.1, "record-unreadable").
			shows(of("a", 3), -3, 0).shows(recordState{unreadable: true}, 0.1, 0.1).shows(of("b", 4), 6.1, 7)
	}},
	"a coordinator names the first": {namedFirst, func() *made {
		return newMade("", "a").leads("a", 1, "nominated").shows(free(0), 0, 0).shows(named("a", 0), 0.5, 0.5).shows(of("a", 1), 1, 5)
	}},
	"a coordinator names after a release": {releasedAndNamed, func() *made {
		return newMade("a", "b").ends("a", 0.1, "stopped").releases("a", 0.1, "done").says("a", 0.2, saidInOrder, "").
			leads("b", 0.3, "nominated").shows(of("a", 1), -3, 0).shows(free(1), 0.1, 0.1).shows(named("b", 1), 0.2, 0.2).shows(of("b", 2), 0.3, 3)
	}},
	"a coordinator names after a lease": {namedAfterLease, func() *made {
		return newMade("a", "b").leads("b", 6, "nominated").shows(of("a", 1), -3, -0.2).shows(named("b", 1), 5.9, 5.9).shows(of("b", 2), 6, 8)
	}},
	"zombie": {awake, func() *made { return lost().ends("a", 8, "validity-ended") }},
}

func lost() *made {
	return newMade("a", "b").leads("b", 5.6, "lease-expired").shows(of("a", 1), -3, -0.5).shows(of("b", 2), 5.6, 8)
}

func TestRightActsAreAcquitted(t *testing.T) {
	for name, c := range right {
		if err := c.course.convict(c.trial().evidence); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each is an act that ends with one leader at work and no overlap, and is wrong all the same. The
// faults' names say what of a server or an elector would look so.
func TestWrongActsAreConvicted(t *testing.T) {
	cases := []struct {
		fault  string
		course course
		trial  *made
		want   string
	}{
		{"SIGTERM is not handled: the process dies with its lock", released, lost(), `by "lease-expired", and it should be by "lock-free"`},
		{"the lock is not released", released, newMade("a", "b").ends("a", 0.1, "stopped").says("a", 0.2, saidInOrder, "").
			leads("b", 5.6, "lease-expired").shows(of("a", 1), -3, 0).shows(of("b", 2), 6, 8), `by "lease-expired"`},
		{"the process dies after the release", released, newMade("a", "b").ends("a", 0.1, "stopped").releases("a", 0.1, "done").
			leads("b", 0.2, "lock-free").shows(of("a", 1), -3, 0).shows(free(1), 0.1, 0.1).shows(of("b", 2), 0.2, 3), "has not ended in order"},
		{"the lock is released before the work has ended", released, newMade("a", "b").
			says("a", 0.1, saidPhase, "from=leading to=draining why=stopped").releases("a", 0.1, "done").says("a", 0.11, saidEnded, "").
			says("a", 0.2, saidInOrder, "").leads("b", 0.2, "lock-free").
			shows(of("a", 1), -3, 0).shows(free(1), 0.1, 0.1).shows(of("b", 2), 0.2, 3), "before its work had ended"},
		{"the elector says released where the record shows none", released, newMade("a", "b").ends("a", 0.1, "stopped").
			releases("a", 0.1, "done").says("a", 0.2, saidInOrder, "").leads("b", 5.6, "lock-free").
			shows(of("a", 1), -3, 0).shows(of("b", 2), 6, 8), `went through "former, leader"`},
		{"a stopped process leads again", released, newMade("a", "a").leads("a", 1, "lock-free").
			shows(of("a", 1), -3, 0).shows(free(1), 0.1, 0.1).shows(of("a", 2), 0.2, 3), "should be another"},
		{"the leader never accepts: it is overwritten", handedOver, newMade("a", "b").ends("a", 1, "superseded").
			leads("b", 7, "outranks").shows(of("a", 0), -5, 0.9).shows(of("b", 1), 1, 8), `by "outranks"`},
		{"the leader releases instead of writing the challenger in", handedOver, newMade("a", "b").ends("a", 1, "stepped-down").
			releases("a", 1, "following").leads("b", 1.1, "lock-free").shows(of("a", 0), -5, 0.9).shows(free(0), 1, 1).shows(of("b", 1), 1.1, 3),
			`by "lock-free"`},
		{"the challenger is written in before the work has ended", handedOver, newMade("a", "b").
			says("a", 1, saidPhase, "from=leading to=draining why=handing-over").releases("a", 1, "following").leads("b", 1.1, "nominated").
			shows(of("a", 0), -5, 0.9).shows(nominee("b", 1), 1, 1).shows(of("b", 1), 1.1, 3), "before its work had ended"},
		{"a nominee that counts twice", handedOver, newMade("a", "b").ends("a", 1, "handing-over").releases("a", 1, "following").
			leads("b", 1.1, "nominated").shows(of("a", 0), -5, 0.9).shows(nominee("b", 1), 1, 1).shows(of("b", 2), 1.1, 3), "2 transitions after 1"},
		{"one's own name is not known", reclaimed, newMade("a", "a").says("a", 0.5, saidServer, "").leads("a", 5.6, "lease-expired").
			shows(of("a", 1), -3, -0.5).shows(of("a", 2), 5.6, 8), `by "lease-expired", and it should be by "own-name"`},
		{"another takes the lock although the process is back", reclaimed, lost().says("a", 0.5, saidServer, ""), "should be a again"},
		{"half a lease is waited for", waitedFor, newMade("a", "b").leads("b", 2.6, "lease-expired").
			shows(of("a", 1), -3, -0.5).shows(of("b", 2), 2.6, 8), "before the lease of 6s was over"},
		{"the lock of a dead leader counts as free", waitedFor, newMade("a", "b").leads("b", 1, "lock-free").
			shows(of("a", 1), -3, -0.5).shows(of("b", 2), 1, 8), `by "lock-free"`},
		{"--lease-duration is bound to another flag", waitedFor, func() *made {
			t := lost()
			t.steps[1].lease = 4
			return t
		}(), "a lease of 4 s"},
		{"transitions are not counted", waitedFor, func() *made {
			t := lost()
			t.steps[1].transitions = 1
			return t
		}(), "1 transitions after 1"},
		{"a stranger's record in between", waitedFor, newMade("a", "b").leads("b", 5.6, "lease-expired").
			shows(of("a", 1), -3, -0.5).shows(of("x", 2), 3, 3).shows(of("b", 3), 9, 9), `"former, x, leader"`},
		{"one of a lower rank is faster, and too fast", waitedFor, newMade("a", "b").leads("c", 2, "lease-expired").
			ends("c", 2.1, "handing-over").releases("c", 2.1, "following").leads("b", 2.2, "nominated").
			shows(of("a", 1), -3, -0.5).shows(stable("c", 2), 2, 2.1).shows(nominee("b", 3), 2.1, 2.1).shows(of("b", 3), 2.2, 8), "before the lease"},
		{"one of a lower rank is faster, and is overwritten", waitedFor, newMade("a", "b").leads("c", 6, "lease-expired").
			leads("b", 7, "outranks").shows(of("a", 1), -3, -0.5).shows(stable("c", 2), 6, 6).shows(of("b", 3), 7, 8), `by "outranks"`},
		{"a deleted lock is settled for", madeAgain, newMade("a", "a").ends("a", 0.1, "lock-deleted").leads("a", 6.2, "lease-expired").
			shows(of("a", 3), -3, 0).shows(recordState{gone: true}, 0.1, 0.1).shows(of("a", 0), 0.2, 8), `by "lease-expired"`},
		{"the leader goes on without a lock, and makes it in passing", madeAgain, newMade("a", "a").leads("a", 0.2, "lock-absent").
			shows(of("a", 3), -3, 0).shows(recordState{gone: true}, 0.1, 0.1).shows(of("a", 0), 0.2, 3), "did not say that its term ended"},
		{"another makes a deleted lock", madeAgain, newMade("a", "b").ends("a", 0.1, "lock-deleted").leads("b", 0.2, "lock-absent").
			shows(of("a", 3), -3, 0).shows(recordState{gone: true}, 0.1, 0.1).shows(of("b", 0), 0.2, 3), "should be a again"},
		{"a record that cannot be read is replaced at once", outwaited, newMade("a", "b").ends("a", 0.1, "record-unreadable").
			leads("b", 0.2, "record-unreadable").shows(of("a", 3), -3, 0).shows(recordState{unreadable: true}, 0.1, 0.1).
			shows(of("b", 4), 0.2, 7), "before the lease"},
		{"a leader goes on beside a record that cannot be read", outwaited, newMade("a", "b").leads("b", 6.1, "record-unreadable").
			shows(of("a", 3), -3, 0).shows(recordState{unreadable: true}, 0.1, 0.1).shows(of("b", 4), 6.1, 7), "did not say that its term ended"},
		{"a coordinator names before the lease is over", namedAfterLease, newMade("a", "b").leads("b", 6, "nominated").
			shows(of("a", 1), -3, -0.2).shows(named("b", 1), 1, 1).shows(of("b", 2), 6, 8), "before the lease of 6s was over"},
		{"nobody names anybody, and the key decides", namedFirst, newMade("", "a").leads("a", 18, "no-coordinator").
			shows(free(0), 0, 0).shows(of("a", 1), 18, 19), `by "no-coordinator"`},
		{"a coordinator counts a term", namedFirst, newMade("", "a").leads("a", 1, "nominated").
			shows(free(0), 0, 0).shows(named("a", 1), 0.5, 0.5).shows(of("a", 2), 1, 5), "1 transitions after 0"},
		{"a coordinator has one that it has named hand over to its equal", namedFirst, newMade("", "b").leads("a", 1, "nominated").
			ends("a", 1.1, "handing-over").releases("a", 1.1, "following").leads("b", 1.2, "nominated").
			shows(free(0), 0, 0).shows(named("a", 0), 0.5, 0.5).shows(of("a", 1), 1, 1).shows(nominee("b", 2), 1.1, 1.1).shows(of("b", 2), 1.2, 5),
			`"named a, a, nominated leader, leader"`},
		{"the lease lapses where another is preferred", preferred, newMade("a", "b").ends("a", 1, "handing-over").releases("a", 1, "following").
			leads("b", 7, "nominated").shows(of("a", 0), -5, 0.9).shows(named("b", 0), 7, 7).shows(of("b", 1), 7.1, 8), `"former, named leader, leader"`},
		{"a leader that wakes does not look at its clock", awake, lost(), "did not say that its term ended"},
		{"a leader that wakes takes its lock back", awake, lost().ends("a", 8, "validity-ended").shows(of("a", 3), 8, 8), `"former, leader, former"`},
		{"the first term did not begin with the lock's absence", electedFirst, newMade("", "a").leads("a", 1, "").shows(of("a", 0), 1, 5),
			`by "", and it should be by "lock-absent"`},
	}
	for _, c := range cases {
		if err := c.course.convict(c.trial.evidence); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the verdict is %v, want %s", c.fault, err, c.want)
		}
	}
}

func TestChronicleKeepsWhatChanged(t *testing.T) {
	var c chronicle
	renewed := func(s recordState, at int64) recordState {
		s.renewed = at
		return s
	}
	for i, s := range []recordState{
		of("a", 0), renewed(of("a", 0), 1), free(0), renewed(of("b", 1), 3), renewed(of("b", 1), 4), renewed(of("b", 1), 4), // the last is a request
	} {
		c.take(s, at(float64(i)))
	}
	got := c.since(at(0.5))
	want := []step{{renewed(of("a", 0), 1), at(0), at(1)}, {free(0), at(2), at(2)}, {renewed(of("b", 1), 4), at(3), at(4)}}
	if len(got) != len(want) {
		t.Fatalf("steps %v, want %v", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("step %d is %v, want %v", i, got[i], want[i])
		}
	}
	if later := c.since(at(2.5)); len(later) != 2 || later[0].holder != "" {
		t.Errorf("from 2.5 on: %v, want the free lock and b", later)
	}
}

const page = `# HELP leader_election_master_status Whether
leader_election_master_status{name="istio-namespace-controller-election"} 1
leader_election_master_status{name="another"} 1
incumbent_election_cover_left_seconds{name="istio-namespace-controller-election"} 3.5
incumbent_election_refused_writes_total{by="fence",name="istio-namespace-controller-election"} 2
incumbent_election_refused_writes_total{by="gate",name="istio-namespace-controller-election"} 5
incumbent_election_requests_total{name="istio-namespace-controller-election",result="ok",role="leading",verb="renew"} 1e+01
go_goroutines 12
`

func TestSurfacesThatContradictWhatIsSo(t *testing.T) {
	metrics, err := parseMetrics(strings.NewReader(page), witnessed)
	if err != nil {
		t.Fatal(err)
	}
	if fence, all := metrics.sum(metricRefused, `by="fence"`), metrics.sum(metricRefused, ""); fence != 2 || all != 7 || metrics.sum(metricRequests, "") != 10 {
		t.Errorf("the sums are %v, %v, %v", fence, all, metrics.sum(metricRequests, ""))
	}
	canary, old := "canary", "stable"
	good := func() surface {
		return surface{metrics: metrics, leads: true, fenced: true, holder: "a", defaultRevision: &canary}
	}
	verdict := func(s surface, pod string) error { return s.contradiction(pod, "a", "canary", true, 4*time.Second) }
	if err := verdict(good(), "a"); err != nil {
		t.Errorf("what is so: %v", err)
	}
	follower := surface{metrics: samples{}, fenced: true, holder: "a", defaultRevision: &canary}
	if err := verdict(follower, "b"); err != nil {
		t.Errorf("a follower: %v", err)
	}
	for want, change := range map[string]func(*surface){
		"leading is false":                        func(s *surface) { s.leads = false },
		`says at /debug/elections that "b" leads`: func(s *surface) { s.holder = "b" },
		"another default":                         func(s *surface) { s.defaultRevision = &old },
		"knows another":                           func(s *surface) { s.defaultRevision = nil },
		"fence does not stand":                    func(s *surface) { s.fenced = false },
		metricLeads + " at 0":                     func(s *surface) { s.metrics = samples{metricCover + `{name="x"`: 3} },
		metricCover + " at 0":                     func(s *surface) { s.metrics = samples{metricLeads + `{name="x"`: 1} },
		metricCover + " at 5":                     func(s *surface) { s.metrics = samples{metricLeads + `{name="x"`: 1, metricCover + `{name="x"`: 5} },
	} {
		s := good()
		change(&s)
		if err := verdict(s, "a"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the verdict is %v, want %s", err, want)
		}
	}
	two := follower
	two.leads = true
	if err := verdict(two, "b"); err == nil || !strings.Contains(err.Error(), "b says at /debug/elections that leading is true") {
		t.Errorf("a second leader: %v", err)
	}
	follower.metrics = metrics
	if err := verdict(follower, "b"); err == nil {
		t.Error("a follower with a leader's metrics is not convicted")
	}
}
