package admin

import (
	"errors"
	"strings"
	"testing"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

func TestHowLongAnOrderStands(t *testing.T) {
	for d, want := range map[time.Duration]int{
		time.Second: 1, time.Second + 1: 2, core.MaxHold: 7 * 24 * 3600, time.Second - 1: 0, core.MaxHold + 1: 0, 0: 0, -time.Hour: 0,
	} {
		got, err := holdSeconds(d)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%v: %d, %v", d, got, err)
		}
	}
}

// ledBy is a lock that a leader of ours holds.
func ledBy(holder string, transitions int) core.Snapshot {
	return core.Snapshot{
		Exists: true, Content: core.Readable,
		Record:      core.Record{Holder: holder, Transitions: transitions, Lease: 10 * time.Second, Acquired: 1, Renewed: 2},
		Annotations: core.Annotations{Marker: core.Marker{Identity: holder, Transitions: transitions}},
	}
}

func TestWhoObeysAnOrder(t *testing.T) {
	promised := core.Request{Identity: "b", Holder: "a", Transitions: 3, Accepted: true}
	for name, c := range map[string]struct {
		change func(*core.Snapshot)
		to     string
		is     error
		fails  bool
	}{
		"a leader of ours":           {func(*core.Snapshot) {}, "b", nil, false},
		"to whoever comes":           {func(*core.Snapshot) {}, "", nil, false},
		"a free lock":                {func(s *core.Snapshot) { s.Record.Holder = ""; s.Annotations.Marker.Identity = "" }, "b", ErrNoLeader, true},
		"no marker":                  {func(s *core.Snapshot) { s.Annotations.Marker = core.Marker{} }, "b", ErrNoLeader, true},
		"another term's marker":      {func(s *core.Snapshot) { s.Annotations.Marker.Transitions = 2 }, "b", ErrNoLeader, true},
		"another's marker":           {func(s *core.Snapshot) { s.Annotations.Marker.Identity = "c" }, "b", ErrNoLeader, true},
		"it leads already":           {func(*core.Snapshot) {}, "a", nil, true},
		"promised":                   {func(s *core.Snapshot) { s.Annotations.Request = promised }, "c", ErrHandoverUnderWay, true},
		"asked, not yet promised":    {func(s *core.Snapshot) { s.Annotations.Request = promised; s.Annotations.Request.Accepted = false }, "c", nil, false},
		"promised in another term":   {func(s *core.Snapshot) { s.Annotations.Request = promised; s.Annotations.Request.Transitions = 2 }, "c", nil, false},
		"promised by another leader": {func(s *core.Snapshot) { s.Annotations.Request = promised; s.Annotations.Request.Holder = "x" }, "c", nil, false},
	} {
		snap := ledBy("a", 3)
		c.change(&snap)
		if err := obeys(snap, c.to); (err != nil) != c.fails || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What has become of an order, by what the lock shows at an instant.
func TestWhatBecomesOfAnOrder(t *testing.T) {
	order := core.Request{Identity: "b", Requester: "op", Reason: core.ForOperator, Holder: "a", Transitions: 3, Seconds: 10}
	const began = core.Instant(time.Hour)
	at := func(d time.Duration) core.Instant { return began.After(d) }
	waits := func(change func(*core.Request)) core.Snapshot {
		s := ledBy("a", 3)
		s.Annotations.Request = order
		change(&s.Annotations.Request)
		return s
	}
	taken := func(holder string, change func(*core.Snapshot)) core.Snapshot {
		s := ledBy(holder, 4)
		change(&s)
		return s
	}
	as := func(*core.Request) {}
	without := func(where core.Halves) core.Snapshot {
		s := waits(func(r *core.Request) { *r = core.Request{} })
		s.Halves = where
		return s
	}
	unmarked := func(s *core.Snapshot) { s.Annotations.Marker = core.Marker{} }
	for name, c := range map[string]struct {
		snap  core.Snapshot
		now   core.Instant
		any   bool // the order names nobody
		taken core.Instant
		done  bool
		fails bool
	}{
		"not accepted yet":          {snap: waits(as), now: at(10*time.Second - 1)},
		"not accepted in time":      {snap: waits(as), now: at(10 * time.Second), fails: true},
		"accepted":                  {snap: waits(func(r *core.Request) { r.Accepted = true }), now: at(time.Minute)},
		"refused":                   {snap: waits(func(r *core.Request) { r.Refused = "no" }), now: at(0), fails: true},
		"another's request":         {snap: waits(func(r *core.Request) { r.Requester = "other" }), now: at(0), fails: true},
		"a request for another":     {snap: waits(func(r *core.Request) { r.Identity = "c" }), now: at(0), fails: true},
		"gone":                      {snap: without(0), now: at(0), fails: true},
		"gone from both objects":    {snap: without(core.InFirst | core.InSecond), now: at(0), fails: true},
		"not in the first object":   {snap: without(core.InFirst), now: at(10*time.Second - 1)},
		"not in the second object":  {snap: without(core.InSecond), now: at(10*time.Second - 1)},
		"not there in time":         {snap: without(core.InSecond), now: at(10 * time.Second), fails: true},
		"it came":                   {snap: taken("b", func(*core.Snapshot) {}), now: at(0), done: true},
		"whoever came":              {snap: taken("c", func(*core.Snapshot) {}), now: at(0), any: true, done: true},
		"another came":              {snap: taken("c", func(*core.Snapshot) {}), now: at(0), fails: true},
		"nobody came":               {snap: taken("", unmarked), now: at(0), fails: true},
		"it settles":                {snap: taken("b", unmarked), now: at(0)},
		"it settles for two leases": {snap: taken("b", unmarked), now: at(20 * time.Second), taken: began},
		"it settles for longer":     {snap: taken("b", unmarked), now: at(20*time.Second + 1), taken: began, fails: true},
		"a marker of another term":  {snap: taken("b", func(s *core.Snapshot) { s.Annotations.Marker.Transitions = 3 }), now: at(0)},
		"a marker of another":       {snap: taken("b", func(s *core.Snapshot) { s.Annotations.Marker.Identity = "a" }), now: at(0)},
		"a peer, written in": {snap: taken("b", func(s *core.Snapshot) {
			unmarked(s)
			s.Annotations.Nominated, s.Record.Renewed = core.Nomination{Identity: "b", Transitions: 4}, s.Record.Acquired
		}), now: at(time.Hour), taken: began},
		"a peer that writes": {snap: taken("b", func(s *core.Snapshot) {
			unmarked(s)
			s.Annotations.Nominated = core.Nomination{Identity: "b", Transitions: 4}
		}), now: at(0), done: true},
	} {
		w := orderProgress{r: order, lease: 10 * time.Second, began: began, changed: began, heldSince: c.taken}
		if c.any {
			w.r.Identity = ""
		}
		done, err := w.outcome(c.snap, c.now)
		if done != c.done || (err != nil) != c.fails || err != nil && !errors.Is(err, ErrNotExecuted) {
			t.Errorf("%s: %v, %v", name, done, err)
		}
	}
}

// Who has accepted drains; who renews for eight leases after may be a peer under the name of one that
// was killed, and an order ends without it.
func TestHowLongADrainIsWaitedFor(t *testing.T) {
	order := core.Request{Identity: "b", Requester: "op", Holder: "a", Transitions: 3, Seconds: 10}
	const began = core.Instant(time.Hour)
	snap := ledBy("a", 3)
	snap.Annotations.Request = order
	w := orderProgress{r: order, lease: 10 * time.Second, began: began, changed: began}
	look := func(after time.Duration) error {
		snap.Record.Renewed++ // it renews
		done, err := w.update(snap, nil, began.After(after))
		if done {
			t.Errorf("done after %v", after)
		}
		return err
	}
	lease := snap.Record.Lease
	if err := look(5 * time.Second); err != nil {
		t.Error(err)
	}
	snap.Annotations.Request.Accepted = true
	for _, after := range []time.Duration{0, lease, 8 * lease} {
		if err := look(6*time.Second + after); err != nil {
			t.Errorf("%v after it was seen to accept: %v", after, err)
		}
	}
	if err := look(6*time.Second + 8*lease + 1); err == nil || errors.Is(err, ErrNotExecuted) || !strings.Contains(err.Error(), "a accepted it and holds the lock for") {
		t.Errorf("later: %v", err)
	}
}

// The patience of an order is counted from when its nominee was first seen, and from the
// last change of the record.
func TestHowLongAnOrderIsWaitedFor(t *testing.T) {
	order := core.Request{Identity: "b", Requester: "op", Holder: "a", Transitions: 3, Seconds: 10, Accepted: true}
	const began = core.Instant(time.Hour)
	snap := ledBy("b", 4)
	snap.Annotations.Marker = core.Marker{}
	w := orderProgress{r: order, lease: 10 * time.Second, began: began, changed: began}
	for i := range 2 {
		if done, err := w.leads(snap, began.After(time.Duration(i)*20*time.Second)); done || err != nil {
			t.Errorf("%v, %v", done, err)
		}
	}
	if _, err := w.leads(snap, began.After(20*time.Second+1)); !errors.Is(err, ErrNotExecuted) {
		t.Errorf("%v", err)
	}

	still := ledBy("a", 3)
	still.Annotations.Request = order
	w = orderProgress{r: order, lease: 30 * time.Second, began: began, changed: began}
	unreachable := errors.New("unreachable")
	for _, c := range []struct {
		snap  core.Snapshot
		err   error
		after time.Duration
		fails error
	}{
		{still, nil, 5 * time.Second, nil},                    // a change: its lease of 10 s counts now
		{still, nil, 16 * time.Second, nil},                   // 11 s after it
		{core.Snapshot{}, unreachable, 16 * time.Second, nil}, //
		{core.Snapshot{}, unreachable, 16*time.Second + 1, unreachable},
		{still, nil, 16*time.Second + 1, ErrNotExecuted},
	} {
		done, err := w.update(c.snap, c.err, began.After(c.after))
		if done || !errors.Is(err, c.fails) || (err == nil) != (c.fails == nil) {
			t.Errorf("after %v: %v, %v", c.after, done, err)
		}
	}
}
