package core

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/record"
)

// herd is a world without faults: a store, and candidates of one rank with a watch. Messages take some milliseconds.
type herd struct {
	now        time.Duration
	queue      []message
	random     *rand.Rand
	config     Config
	stored     Snapshot
	candidates []*racer
	conflicts  int
	reads      int
	freeAt     time.Duration   // of the last release
	waits      []time.Duration // from a release until the next write arrived
}

type message struct {
	at   time.Duration
	what func()
}

type racer struct {
	name  string
	key   string // instead of the key of the world
	s     State
	timer int
	runs  bool
	dead  bool
}

func (h *herd) after(d time.Duration, what func()) {
	at := h.now + d
	i, _ := slices.BinarySearchFunc(h.queue, at, func(m message, at time.Duration) int { return int(m.at - at - 1) })
	h.queue = slices.Insert(h.queue, i, message{at, what})
}

// oneWay returns the latency of a message.
func (h *herd) oneWay() time.Duration {
	return time.Millisecond + time.Duration(h.random.Int64N(int64(2*time.Millisecond)))
}

func (h *herd) play(d time.Duration) {
	until := h.now + d
	for len(h.queue) > 0 && h.queue[0].at <= until {
		m := h.queue[0]
		h.queue = h.queue[1:]
		h.now = m.at
		m.what()
	}
	h.now = until
}

func (h *herd) join(n int) *racer {
	r := &racer{name: fmt.Sprint("replica-", n)}
	h.candidates = append(h.candidates, r)
	h.input(r, Input{Kind: Watching})
	return r
}

func (h *herd) input(r *racer, in Input) {
	if r.dead {
		return
	}
	c := h.config
	c.Self = r.name
	c.Key = cmp.Or(r.key, c.Key)
	in.Now = moment(h.now)
	var a Action
	r.s, a = c.Step(r.s, in)
	if a.Op != NoOp {
		h.after(h.oneWay(), func() { h.arrive(r, a) })
	}
	if r.runs && !a.Run {
		h.after(time.Millisecond, func() { h.input(r, Input{Kind: Drained}) })
	}
	r.runs = a.Run
	if r.timer++; a.Wake != Never {
		turn := r.timer
		h.after(max(0, in.Now.Mono.Until(a.Wake)), func() {
			if r.timer == turn {
				h.input(r, Input{Kind: Tick})
			}
		})
	}
}

// arrive handles a call at the store.
func (h *herd) arrive(r *racer, a Action) {
	in := Input{Kind: Replied}
	switch {
	case a.Op == Read:
		h.reads++
	case a.Base.Version != h.stored.Version:
		in.Result = Conflict
		h.conflicts++
	default:
		h.stored = Snapshot{Exists: true, UID: "u", Version: h.stored.Version + 1, Content: record.Readable, Sum: h.stored.Sum + 1, Record: a.Record, Annotations: a.Annotations}
		if a.Op == Release {
			h.freeAt = h.now
		} else if a.Op == Acquire {
			h.waits = append(h.waits, h.now-h.freeAt)
		}
		h.notify()
	}
	if in.Result == OK {
		in.Snap = h.stored
	}
	h.after(h.oneWay(), func() { h.input(r, in) })
}

func (h *herd) notify() {
	seen := h.stored
	for _, r := range h.candidates {
		h.after(h.oneWay(), func() { h.input(r, Input{Kind: Seen, Snap: seen}) })
	}
}

// stop ends the leader. Another process replaces it.
func (h *herd) stop(n int) {
	for i, r := range h.candidates {
		if r.runs {
			h.candidates = slices.Delete(h.candidates, i, i+1)
			h.input(r, Input{Kind: Stop})
			break
		}
	}
	h.play(500 * time.Millisecond)
	h.join(n)
	h.play(500 * time.Millisecond)
}

// After some events, a herd costs a few conflicts for each event, for each number of candidates. The first write is as early as
// with two candidates, and up to three candidates never wait.
func TestHerd(t *testing.T) {
	for _, x := range []struct {
		candidates int
		most       float64 // conflicts per event, after the candidates have learned
	}{{2, 0}, {3, 0.1}, {20, 1}, {100, 3}, {300, 9}} {
		h := &herd{random: rand.New(rand.NewPCG(1, uint64(x.candidates))), config: testConfig()}
		h.config.Ranked = false
		for i := range x.candidates {
			h.join(i)
		}
		h.play(time.Second)
		next := x.candidates
		events := func(n int) (conflicts float64) {
			h.conflicts, h.reads, h.waits = 0, 0, nil
			for range n {
				h.stop(next)
				next++
			}
			slices.Sort(h.waits)
			return float64(h.conflicts) / float64(n)
		}
		learning := events(20)
		conflicts := events(60)
		median, longest := h.waits[len(h.waits)/2], h.waits[len(h.waits)-1]
		t.Logf("%3d candidates: %5.2f conflicts in the first events, then %.2f; the next acquisition after %v, at most %v", x.candidates, learning, conflicts, median, longest)
		if conflicts > x.most || h.reads != 60 || median > 5*time.Millisecond || x.candidates <= 3 && longest > 6*time.Millisecond {
			t.Errorf("%d candidates: %d reads, want one of each new candidate", x.candidates, h.reads)
		}
	}
}

// A candidate that waits for its turn does not wait longer than a lower rank. So the lower rank does not acquire the lock after most
// candidates of the highest rank have gone. Ranks do not cost more conflicts.
func TestHerd_LowerRank(t *testing.T) {
	const rounds, events = 12, 20
	conflicts, overtaken := 0, 0
	for round := range rounds {
		h := &herd{random: rand.New(rand.NewPCG(2, uint64(round))), config: testConfig()}
		join := func(n int, key string) {
			r := h.join(n)
			r.key = key
			h.input(r, Input{Kind: DefaultChanged, Default: DefaultRevision{Synced: true, Revision: h.config.Key}})
		}
		for i := range 100 {
			join(i, "")
		}
		h.play(time.Second)
		for i := range 3 * events {
			if i == 2*events { // the candidates have learned
				h.conflicts = 0
			}
			h.stop(100 + i)
		}
		conflicts += h.conflicts
		left := 1 + round%3
		for _, r := range h.candidates {
			waits := !r.runs && r.s.Effort.Herd.Lost == herdLosses
			r.dead = !r.runs && !(waits && left > 0)
			if waits {
				left--
			}
		}
		h.candidates = slices.DeleteFunc(h.candidates, func(r *racer) bool { return r.dead })
		join(1000, "canary")
		leader := slices.IndexFunc(h.candidates, func(r *racer) bool { return r.runs })
		h.input(h.candidates[leader], Input{Kind: Stop})
		if h.play(h.config.RankDelay + 15*time.Millisecond); h.stored.Record.Key != h.config.Key {
			overtaken++
		}
	}
	t.Logf("%.2f conflicts per event, overtaken %d times in %d", float64(conflicts)/rounds/events, overtaken, rounds)
	if conflicts > 3*rounds*events || overtaken > 0 {
		t.Error("too many")
	}
}

// The same holds for an expired lease and a deleted lock.
func TestHerd_OtherEvents(t *testing.T) {
	h := &herd{random: rand.New(rand.NewPCG(1, 1)), config: testConfig()}
	h.config.Ranked = false
	for i := range 100 {
		h.join(i)
	}
	h.play(time.Second)
	for _, event := range []func(){
		func() { // the leader dies
			for i, r := range h.candidates {
				if r.runs {
					r.dead = true
					h.candidates[i] = &racer{name: r.name + "+"}
					h.input(h.candidates[i], Input{Kind: Watching})
				}
			}
		},
		func() { // the lock is deleted
			h.stored = Snapshot{Version: h.stored.Version + 1}
			h.notify()
		},
	} {
		for range 2 { // the first time, the candidates learn
			h.conflicts, h.waits = 0, nil
			for range 40 {
				event()
				h.play(2 * h.config.Lease)
			}
		}
		t.Logf("%.2f conflicts per event", float64(h.conflicts)/40)
		if h.conflicts > 3*40 || len(h.waits) != 40 {
			t.Errorf("%d conflicts and %d terms in 40 events", h.conflicts, len(h.waits))
		}
	}
}

func TestObserveHerd(t *testing.T) {
	c := testConfig()
	learned := Herd{Window: 100 * time.Millisecond, Lost: 1}
	shorter := Herd{Window: 95 * time.Millisecond, Lost: 1}
	longer := Herd{Window: c.maxWindow(), Lost: 2}
	measured := longer
	measured.Late = 10 * time.Millisecond
	unfit := func(s State) State { s.Unfit = true; return s }
	met := func(s State) State { s.Effort.Writes = Effort{Conflicts: 1, Base: s.Snap.Version}; return s }
	asked := lock("lower, hands over", newer, func(s *Snapshot) {
		s.Annotations.Request = Request{Identity: "c", Key: "stable", Holder: "b", Transitions: 3, Seconds: 4}
	})
	taken := lock("equal", newer, to("c", 4), marked("c", 4))
	for name, x := range map[string]struct {
		s    State
		next Snapshot
		want Herd
	}{
		"lost":                  {calling(follower(c, lock("free"), "stable"), Acquire), taken, measured},
		"lost, seen later":      {met(follower(c, lock("free"), "stable")), taken, longer},
		"request lost":          {calling(follower(c, lock("lower, hands over"), "stable"), SendRequest), asked, measured},
		"another was first":     {follower(c, lock("free"), "stable"), taken, shorter},
		"another asked first":   {follower(c, lock("lower, hands over"), "stable"), asked, shorter},
		"waiting by rank":       {follower(c, lock("free"), "canary"), taken, learned},
		"of a live holder":      {follower(c, lock("equal"), "stable"), taken, learned},
		"unfit":                 {unfit(follower(c, lock("free"), "stable")), taken, learned},
		"nominated":             {calling(follower(c, lock("free"), "stable"), Acquire), lock("equal", newer, nominated("c", 4)), learned},
		"renewed":               {calling(follower(c, lock("lower, hands over"), "stable"), SendRequest), lock("lower, hands over", newer, renewed), learned},
		"label of a free lock":  {calling(follower(c, lock("free"), "stable"), Acquire), lock("free", newer), learned},
		"own":                   {calling(follower(c, lock("free"), "stable"), Acquire), lock("mine", newer), learned},
		"request of lower rank": {follower(c, lock("lower, hands over"), "canary"), asked, learned},
	} {
		x.s.Effort.Herd = learned
		in := later(0.01, x.next)
		if got := c.observe(&x.s, in).Effort.Herd; got != x.want {
			t.Errorf("%s: %+v, want %+v", name, got, x.want)
		}
	}
	s := follower(c, lock("free"), "stable")
	s.Effort.Herd = learned
	if h := c.observe(&s, later(9, taken)).Effort.Herd; h.Window != learned.Window-c.RankDelay/2 {
		t.Errorf("a slow API server shortens the window to %v", h.Window)
	}
	learned.Late = 5 * time.Millisecond
	if h := learned.won(Acquire); h != (Herd{Window: 50 * time.Millisecond}) || learned.won(SendRequest) != h || learned.won(Renew) != learned {
		t.Errorf("after a stored write: %+v", h)
	}
}

// Only a candidate that lost several races waits, and a nominee or preferred candidate never does.
func TestTurn(t *testing.T) {
	c := testConfig()
	s := follower(c, lock("free"), "stable")
	s.Effort.Herd = Herd{Window: time.Second, Lost: herdLosses}
	ranked := c.turn(&s)
	slow := s
	slow.Effort.Herd.Late = c.RankDelay
	late := c.turn(&slow)
	c.Ranked = false
	if all := c.turn(&s); ranked >= c.RankDelay*3/4 || ranked >= all || late != all {
		t.Errorf("a turn of the highest rank is %v, and %v with slow answers; without ranks %v", ranked, late, all)
	}
	at, _ := c.earliestAcquire(&s, testNow.Mono)
	if turn := testNow.Mono.Until(at); turn <= 0 || turn >= time.Second || turn != c.turn(&s) {
		t.Errorf("a candidate that lost races waits for %v", turn)
	}
	again := s
	again.Snap.Version++
	other := c
	other.Self = "b"
	if c.turn(&again) == c.turn(&s) || other.turn(&s) == c.turn(&s) {
		t.Error("candidates or events have the same turn")
	}
	for name, change := range map[string]func(*State){
		"one lost race": func(s *State) { s.Effort.Herd.Lost-- },
		"preferred":     func(s *State) { s.Snap.Preferred = c.Self },
		"nominee":       func(s *State) { s.Snap = lock("nominated me") },
	} {
		s := s
		change(&s)
		if at, _ := c.earliestAcquire(&s, testNow.Mono); at > testNow.Mono {
			t.Errorf("%s: waits for %v", name, testNow.Mono.Until(at))
		}
	}
}
