package core

import (
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/record"
)

// moment returns a reading of all clocks after testNow.
func moment(after time.Duration) ClockReading {
	return ClockReading{Mono: testNow.Mono.After(after), Boot: testNow.Boot + int64(after), Wall: testNow.Wall + int64(after)}
}

// testConfig has lease 15 s, RenewDeadline 10 s and RetryPeriod 2 s.
func testConfig() Config {
	return Config{
		Self: "a", Key: "stable", Ranked: true, Release: true,
		Timing: Timing{
			Lease: 15 * time.Second, Validity: 10 * time.Second, Retry: 2 * time.Second,
			DrainLimit: 4 * time.Second, StopLimit: 30 * time.Second,
			PeerGrace: 5 * time.Second, RankDelay: 25 * time.Millisecond,
		},
	}
}

var testNow = ClockReading{Mono: Instant(time.Hour), Boot: int64(2 * time.Hour), Wall: 1_780_000_000e9}

// testSnapshots returns one lock of each kind, as seen by candidate a.
func testSnapshots() map[string]Snapshot {
	recorded := func(holder, key string) Record {
		return Record{Holder: holder, Key: key, Lease: 15 * time.Second, Acquired: 5e6, Renewed: 7e6, Transitions: 3}
	}
	lock := func(r Record, n Annotations) Snapshot {
		return Snapshot{Exists: true, UID: "u", Version: 20, Content: record.Readable, Sum: 1, Record: r, Annotations: n}
	}
	marker := func(id string, transitions int) Annotations {
		return Annotations{Marker: Marker{Identity: id, Transitions: transitions}}
	}
	asked := func(accepted bool) Annotations {
		n := marker("a", 3)
		n.Request = Request{Identity: "b", Key: "canary", Holder: "a", Transitions: 3, Seconds: 15, Accepted: accepted}
		return n
	}
	handsOver := marker("b", 3)
	handsOver.Marker.Handover = true
	hold := func(holder string) Hold {
		return Hold{Holder: holder, Transitions: 3, Seconds: 10, Requester: "operator", Reason: record.HoldForPause}
	}
	operator := func(identity string) Annotations {
		n := asked(false)
		n.Request.Identity, n.Request.Reason, n.Request.HoldSeconds = identity, record.ForOperator, 60
		return n
	}
	unfit, paused, pausedAsked, pausedPeer := handsOver, handsOver, asked(false), Annotations{Hold: hold("b")}
	unfit.Marker.Unfit = true
	paused.Hold, pausedAsked.Hold = hold("b"), hold("a")
	before15 := func(s Snapshot) Snapshot { s.Version = 14; return s } // older than the first write of the term
	untouched := func(r Record) Record { r.Renewed = r.Acquired; return r }
	nominatedByOperator := Annotations{Nominated: Nomination{Identity: "a", Transitions: 3}, Hold: hold("a")}
	nominatedByOperator.Hold.Reason = record.HoldForTransfer
	return map[string]Snapshot{
		"equal, unfit":           lock(recorded("b", "stable"), unfit),
		"lower, held":            lock(recorded("b", "canary"), paused),
		"lower, unmarked, held":  lock(recorded("b", "canary"), pausedPeer),
		"mine, asked, held":      lock(recorded("a", "stable"), pausedAsked),
		"mine, to transfer":      lock(recorded("a", "stable"), operator("b")),
		"mine, to step down":     lock(recorded("a", "stable"), operator("")),
		"transferred to me":      lock(untouched(recorded("a", "stable")), nominatedByOperator),
		"lower, hands over":      lock(recorded("b", "canary"), handsOver),
		"mine, asked":            lock(recorded("a", "stable"), asked(false)),
		"mine, accepted":         lock(recorded("a", "stable"), asked(true)),
		"absent":                 {Version: 20},
		"no record":              {Exists: true, UID: "u", Version: 20},
		"no record, marker left": {Exists: true, UID: "u", Version: 20, Annotations: marker("b", 3)},
		"unreadable":             {Exists: true, UID: "u", Version: 20, Content: record.Unreadable, Sum: 2},
		"free":                   lock(recorded("", ""), Annotations{}),
		"free, marker left":      lock(recorded("", ""), marker("b", 2)),
		"free, own marker left":  lock(recorded("", ""), marker("a", 2)),
		"mine":                   lock(recorded("a", "stable"), marker("a", 3)),
		"mine, from before":      before15(lock(recorded("a", "stable"), marker("a", 3))),
		"mine, unmarked":         lock(recorded("a", "stable"), Annotations{}),
		"mine, other's marker":   lock(recorded("a", "stable"), marker("b", 2)),
		"equal":                  lock(recorded("b", "stable"), marker("b", 3)),
		"equal, unmarked":        lock(recorded("b", "stable"), Annotations{}),
		"lower":                  lock(recorded("b", "canary"), marker("b", 3)),
		"lower, unmarked":        lock(recorded("b", "canary"), Annotations{}),
		"peer, marker left":      lock(recorded("istiod", "stable"), marker("b", 2)),
		"nominated":              lock(untouched(recorded("b", "stable")), Annotations{Nominated: Nomination{Identity: "b", Transitions: 3}}),
		"nominated me":           lock(untouched(recorded("a", "stable")), Annotations{Nominated: Nomination{Identity: "a", Transitions: 3}}),
	}
}

// later returns a watch event n seconds after testNow.
func later(n float64, snap Snapshot) Input {
	return Input{Kind: Seen, Now: moment(time.Duration(n * float64(time.Second))), Snap: snap}
}

func renewed(s *Snapshot) { s.Sum++; s.Record.Renewed += 1e6 }

// lock returns a changed lock of testSnapshots.
func lock(name string, changes ...func(*Snapshot)) Snapshot {
	s := testSnapshots()[name]
	for _, change := range changes {
		change(&s)
	}
	return s
}

func deleted(s *Snapshot) { s.Exists = false }

func unreadable(s *Snapshot) { s.Content = record.Unreadable }

func released(s *Snapshot) { s.Record.Holder, s.Sum = "", s.Sum+1 }

func recreation(s *Snapshot) { s.UID = "v" }

func older(s *Snapshot) { s.Version = 9 }

func newer(s *Snapshot) { s.Version = 30 }

// to changes holder and term.
func to(holder string, transitions int) func(*Snapshot) {
	return func(s *Snapshot) {
		s.Record.Holder, s.Record.Transitions = holder, transitions
		s.Sum++
	}
}

func marked(holder string, transitions int) func(*Snapshot) {
	return func(s *Snapshot) { s.Annotations.Marker = Marker{Identity: holder, Transitions: transitions} }
}

func nominated(holder string, transitions int) func(*Snapshot) {
	return func(s *Snapshot) {
		to(holder, transitions)(s)
		s.Annotations = Annotations{Nominated: Nomination{Identity: holder, Transitions: transitions}}
		s.Record.Acquired = s.Record.Renewed
		s.Record.Lease = testConfig().nominationLease()
	}
}

// reply returns the end of the call in flight n seconds after testNow.
func reply(n float64, result Result, snap Snapshot) Input {
	return Input{Kind: Replied, Now: moment(time.Duration(n * float64(time.Second))), Result: result, Snap: snap}
}

// calling adds a call in flight that was sent at testNow.
func calling(s State, op Op) State {
	s.Flight = Call{Op: op, Sent: testNow, Base: s.Snap.Version, Learned: s.Learned, Record: s.Snap.Record, Marker: true}
	return s
}

// seenAt returns a state that saw lock, request and hold n seconds before testNow. The default revision is
// stable.
func seenAt(n int, snap Snapshot) State {
	at := testNow.Mono - Instant(time.Duration(n)*time.Second)
	return State{
		Default: DefaultRevision{Synced: true, Revision: "stable"},
		Sight:   Sight{Known: Current, Watch: true, Snap: snap, Since: Since{Record: at, Request: at, Hold: at}, PollAt: Never},
	}
}

// asked changes the request on the lock.
func asked(change func(*Request)) func(*Snapshot) {
	return func(s *Snapshot) { change(&s.Annotations.Request) }
}

// seconds returns testNow + n seconds.
func seconds(n float64) Instant { return testNow.Mono.After(time.Duration(n * float64(time.Second))) }

// follower has seen the lock at testNow and watches it.
func follower(c Config, snap Snapshot, revision string) State {
	s := State{Default: DefaultRevision{Synced: true, Revision: revision}, Sight: Sight{Watch: true}}
	return c.observe(&s, Input{Kind: Seen, Now: testNow, Snap: snap})
}

// ours makes the lock a lock of the present term.
func ours(s State, phase Phase) State {
	r := s.Snap.Record
	s.Phase, s.Marked, s.Why = phase, true, Acquired
	s.Term = Term{LockUID: s.Snap.UID, Transitions: r.Transitions, Token: 15}
	s.Own = wroteLast(s.Own, r)
	s.Own.Renewed, s.Validity = testNow.Mono, testNow.Plus(10*time.Second)
	s.BeganAt = testNow.Mono
	s.Drain.Until = seconds(30)
	if phase == Releasing {
		s.Drain.Until = seconds(10)
	}
	return s
}

// wroteLast makes the record the last own write.
func wroteLast(o Own, r Record) Own {
	o.Writes[0] = writeOf(r)
	return o
}

// nowStamp is the stamp of a write at testNow.
const nowStamp = Stamp(1_780_000_000e6)

// decided has the fields of an action that tests compare.
type decided struct {
	op   Op
	why  Reason
	wake float64 // from testNow; -1: never
}

func (d decided) check(t *testing.T, name string, a Action) {
	t.Helper()
	wake := Never
	if d.wake >= 0 {
		wake = seconds(d.wake)
	}
	if a.Op != d.op || a.Why != d.why || d.op == NoOp && a.Wake != wake {
		t.Errorf("%s: %s because %s, wakes in %v; want %s because %s, in %v",
			name, a.Op, a.Why, testNow.Mono.Until(a.Wake), d.op, d.why, testNow.Mono.Until(wake))
	}
}
