package k8sleaderelection

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// idleLoop returns the loop of an elector that does not run. Posted events stay in its channel.
func idleLoop(t testing.TB, lock k8sresourcelock.Interface, change ...func(*LeaderElectionConfig)) *loop {
	t.Helper()
	_, clock := newSuspender()
	config := LeaderElectionConfig{Lock: lock, LeaseDuration: 30 * time.Second, RenewDeadline: 15 * time.Second, RetryPeriod: 7500 * time.Millisecond, Clock: clock}
	for _, f := range change {
		f(&config)
	}
	le, err := NewLeaderElector(config)
	harness.Must(t, err)
	l := newLoop(le, false)
	l.values = t.Context()
	l.events = make(chan *event, 16)
	l.timer = time.NewTimer(time.Hour)
	l.report = newReporter(t.Context(), le, &l.core)
	return l
}

// posted returns the events that were posted, once all goroutines are idle.
func (l *loop) posted() (all []*event) {
	synctest.Wait()
	for len(l.events) > 0 {
		all = append(all, <-l.events)
		synctest.Wait()
	}
	return all
}

// suspender replaces the kernel, also in a synctest bubble. A suspend advances CLOCK_BOOTTIME and rings the alarms that are due.
type suspender struct {
	epoch time.Time
	mu    sync.Mutex
	slept time.Duration
	due   map[*alarm]int64
}

func newSuspender() (*suspender, *Clock) {
	s := &suspender{epoch: time.Now(), due: map[*alarm]int64{}}
	clock := NewClock(s.boottime)
	clock.alarms = s
	return s, clock
}

func (s *suspender) boottime() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now()
}

// now requires mu.
func (s *suspender) now() int64 { return int64(time.Since(s.epoch) + s.slept) }

func (s *suspender) set(a *alarm, at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due[a] = at
	s.ring()
}

func (s *suspender) unset(a *alarm) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.due, a)
}

func (s *suspender) suspend(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slept += d
	s.ring()
}

// ring requires mu.
func (s *suspender) ring() {
	for a, at := range s.due {
		if at <= s.now() {
			delete(s.due, a)
			go a.ring()
		}
	}
}

// At its end, Campaign has removed its alarms and registrations, and waits for its callbacks.
func TestCampaignReleasesResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alarms, clock := newSuspender()
		returned := false
		l := idleLoop(t, locktest.NewStore(locktest.Lease).Lock("a", "stable").Lock, func(c *LeaderElectionConfig) {
			c.Clock = clock
			c.RunFunctions = []func(context.Context) error{func(ctx context.Context) error { <-ctx.Done(); return nil }}
			c.Callbacks.OnNewLeader = func(string) {
				<-time.After(47 * time.Second)
				returned = true
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.le.Campaign(ctx) }()
		<-time.After(45 * time.Second)
		synctest.Wait()
		if !l.le.IsLeader() || l.le.loop.Load() == nil || len(alarms.due) != 1 || len(clock.jumps.loops) != 1 {
			t.Fatalf("leads %v, alarms %v", l.le.IsLeader(), alarms.due)
		}
		cancel()
		if err := <-ended; err != nil || !returned {
			t.Errorf("%v, OnNewLeader returned %v", err, returned)
		}
		if l.le.loop.Load() != nil || len(alarms.due) != 0 || len(clock.jumps.loops) != 0 {
			t.Errorf("loop %v, alarms %v, registered loops %d", l.le.loop.Load() != nil, alarms.due, len(clock.jumps.loops))
		}
	})
}

// KeyComparison gets the key of the newest known record that has a holder.
func TestKeyComparisonRecord(t *testing.T) {
	l := idleLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Lock, func(c *LeaderElectionConfig) {
		c.KeyComparison = func(key string) bool { return key == "low" }
	})
	l.state.Known = core.Current
	l.state.Snap = core.Snapshot{Version: 5, Record: core.Record{Holder: "x", Key: "high"}}
	l.state.Learned = 1
	low := core.Record{Holder: "y", Key: "low"}
	for name, c := range map[string]struct {
		kind   core.Kind
		result core.Result
		record core.Record
		at     uint64
		want   bool
	}{
		"seen":         {core.Seen, core.Unknown, low, 6, true},
		"read":         {core.Replied, core.OK, low, 6, true},
		"late reply":   {core.Replied, core.OK, low, 4, false},
		"late event":   {core.Seen, core.Unknown, low, 4, false},
		"failed read":  {core.Replied, core.Refused, low, 6, false},
		"no snapshot":  {core.Unwatched, core.OK, low, 6, false},
		"other key":    {core.Seen, core.OK, core.Record{Holder: "y", Key: "high"}, 6, false},
		"empty holder": {core.Seen, core.OK, core.Record{Key: "low"}, 6, false},
	} {
		in := core.Input{Kind: c.kind, Result: c.result, Snap: core.Snapshot{Version: c.at, Record: c.record}}
		l.beats(&in)
		l.le.hooks.Wait(harness.Patience)
		if got := l.beats(&in); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A result of KeyComparison counts only for its key, and in the next pass. A candidate that outranks the holder makes that pass.
func TestKeyComparison_Late(t *testing.T) {
	answer := make(chan bool, 1)
	l := idleLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Lock, func(c *LeaderElectionConfig) {
		c.KeyComparison = func(string) bool { return <-answer }
	})
	ask := func(key string, result bool) (beats, pass bool) {
		beats = l.ask(core.Record{Holder: "x", Key: key}, false)
		answer <- result
		l.le.hooks.Wait(harness.Patience)
		return beats, l.takeSignal() != 0
	}
	for i, c := range []struct {
		key                 string
		result, beats, pass bool
	}{
		{"k", false, false, false},
		{"k", true, false, true},
		{"k", true, true, false},
		{"other", true, false, true},
		{"k", false, false, false},
		{"k", false, false, false},
	} {
		if beats, pass := ask(c.key, c.result); beats != c.beats || pass != c.pass {
			t.Errorf("call %d: beats %v, pass %v", i, beats, pass)
		}
	}
	if l.ask(core.Record{}, false) || l.le.hooks.Wait(0) != true {
		t.Error("KeyComparison is called without a holder")
	}
}

func TestPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var leaders []string
		l := idleLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Lock, func(c *LeaderElectionConfig) {
			c.Callbacks.OnNewLeader = func(name string) { leaders = append(leaders, name) }
		})
		began := time.Now()
		publish := func(edit func(*core.State)) view {
			before := l.state
			edit(&l.state)
			<-time.After(time.Second)
			c := &change{before: before, after: l.state}
			l.publish(c)
			l.report.callbacks(c)
			l.le.hooks.Wait(time.Second)
			return *l.le.view.Load()
		}
		validity := core.Validity{Mono: 1 << 60, Boot: 1 << 60, Wall: 1 << 60}
		held := core.Snapshot{Exists: true, Content: record.Readable, Record: core.Record{Holder: "x", Key: "k", Transitions: 3}}
		for _, c := range []struct {
			name  string
			edit  func(*core.State)
			check func(view) bool
		}{
			{"leads", func(s *core.State) { s.Validity = validity; s.Phase = core.Leading }, func(v view) bool {
				return !v.status.Known && v.acked == 0 && v.validity == validity && v.status.Since.Equal(began.Add(time.Second))
			}},
			{"renewed", func(s *core.State) { s.Validity.Mono++; s.Own.Renewed = 300 }, func(v view) bool {
				return v.acked == 300 && v.validity == l.state.Validity && v.status.Since.Equal(began.Add(time.Second))
			}},
			{"other reply", func(s *core.State) { s.Known = core.Current }, func(v view) bool { return v.acked == 300 && v.status.Known }},
			{"end of validity", func(s *core.State) { s.Validity = core.Validity{} }, func(v view) bool { return v.acked == 300 }},
			{"draining", func(s *core.State) { s.Validity = validity; s.Phase = core.Draining }, func(v view) bool { return v.validity == validity }},
			{"lost", func(s *core.State) { s.Drain.Lost = core.ValidityLost }, func(v view) bool { return v.validity == core.Validity{} }},
			{"holder", func(s *core.State) { s.Snap = held }, func(v view) bool {
				return v.status.Holder == "x" && v.status.HolderKey == "k" && v.status.Transitions == 3
			}},
			{"same holder", func(s *core.State) { s.Unfit = true }, func(v view) bool { return v.status.Holder == "x" && v.status.Unfit }},
			{"deleted", func(s *core.State) { s.Snap.Exists = false }, func(v view) bool { return v.status.Holder == "" }},
			{"unreadable", func(s *core.State) { s.Snap = held; s.Snap.Content = record.Unreadable }, func(v view) bool { return v.status.Holder == "" }},
		} {
			if v := publish(c.edit); !c.check(v) {
				t.Errorf("%s: %+v", c.name, v)
			}
		}
		if len(leaders) != 1 || leaders[0] != "x" {
			t.Errorf("OnNewLeader calls: %q", leaders)
		}
	})
}

// IsLeader and Status read the clock, so they do not depend on the loop.
func TestIsLeader_ReadsClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := idleLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Lock)
		l.le.view.Store(&view{validity: l.le.clock.read().Plus(15 * time.Second)})
		for _, left := range []time.Duration{10 * time.Second, 5 * time.Second, 0, 0} {
			<-time.After(5 * time.Second)
			if s := l.le.Status(); l.le.IsLeader() != (left > 0) || s.Leading != (left > 0) || s.ValidFor != left {
				t.Errorf("with %v left: IsLeader %v, status %+v", left, l.le.IsLeader(), s)
			}
		}
	})
}

func TestCheckBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tolerance = 10 * time.Second
		l := idleLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Lock, func(c *LeaderElectionConfig) { c.Name = "test" })
		l.le.view.Store(&view{running: true, acked: l.le.clock.mono()})
		<-time.After(l.le.config.LeaseDuration + tolerance)
		if err := l.le.Check(tolerance); err != nil {
			t.Errorf("at the bound: %v", err)
		}
		<-time.After(time.Second)
		if err := l.le.Check(tolerance); err == nil || err.Error() != "election test: run functions are still running 11s after the lease expired" {
			t.Errorf("after the bound: %v", err)
		}
	})
}

// The logger of a context, as klog stores it, receives the lines of an elector without Logger.
func TestLogger_OfContext(t *testing.T) {
	var log bytes.Buffer
	ctx := logr.NewContextWithSlogLogger(t.Context(), slog.New(slog.NewTextHandler(&log, nil)))
	own := slog.New(slog.DiscardHandler)
	for name, x := range map[string]struct {
		config *slog.Logger
		ctx    context.Context
		logged bool
	}{"context": {nil, ctx, true}, "config": {own, ctx, false}} {
		log.Reset()
		l := idleLoop(t, locktest.NewStore(locktest.Lease).Lock("a", "").Lock)
		l.le.config.Logger = x.config
		l.le.logger(x.ctx).Info("line")
		l.le.hooks.Wait(harness.Patience)
		if strings.Contains(log.String(), "line") != x.logged {
			t.Errorf("%s: log %q", name, &log)
		}
	}
	defer slog.SetDefault(slog.Default())
	log.Reset()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	le := &LeaderElector{}
	le.logger(t.Context()).Info("line")
	if le.hooks.Wait(harness.Patience); !strings.Contains(log.String(), "line") {
		t.Error("another logger than slog.Default")
	}
}

// effects records the effects of passes in order, with the state at that time: whether the run functions were started and not cancelled,
// and whether something was reported. It is a Gate, a Witness, the alarms of a Clock, and the parent of the contexts of calls.
type effects struct {
	context.Context
	*suspender
	l     *loop
	trace []string
	work  context.Context // of the run function; nil before it began
}

func (e *effects) at(what string) {
	if e.l.term != nil && (e.work == nil || e.work.Err() == nil) {
		what += ", running"
	}
	if !e.l.le.hooks.Wait(0) {
		what += ", reported"
	}
	e.trace = append(e.trace, what)
}

func (e *effects) Set(_ Term, end Validity) { e.at(fmt.Sprintf("gate %v", end != Validity{})) }
func (e *effects) Drain()                   {}
func (e *effects) Register(WitnessedTerm)   { e.at("register") }
func (e *effects) Remove(WitnessedTerm)     { e.at("remove") }
func (e *effects) set(a *alarm, at int64)   { e.at("timer"); e.suspender.set(a, at) }
func (e *effects) unset(a *alarm)           { e.at("timer"); e.suspender.unset(a) }

func (e *effects) Deadline() (time.Time, bool) {
	e.at("send")
	return e.Context.Deadline()
}

// startEffects returns a loop that leads and whose renewal was acknowledged. pass handles an event and checks its effects.
func startEffects(t *testing.T, store *locktest.Store) (e *effects, pass func(ev *event, want ...string)) {
	logged := make(chan struct{}, 1) // has room while the log does not block
	started := make(chan context.Context, 2)
	e = &effects{Context: t.Context()}
	var clock *Clock
	e.suspender, clock = newSuspender()
	clock.alarms = e
	e.l = idleLoop(t, store.Lock("a", "stable").Lock, func(c *LeaderElectionConfig) {
		c.Gate, c.Witness, c.Clock = e, e, clock
		c.Logger = slog.New(pausedLog{slog.DiscardHandler, logged})
		c.RunFunctions = []func(context.Context) error{func(ctx context.Context) error { started <- ctx; <-ctx.Done(); return nil }}
	})
	e.l.values = e
	pass = func(ev *event, want ...string) {
		t.Helper()
		e.trace = nil
		logged <- struct{}{}
		if e.l.pass(ev); !slices.Equal(e.trace, want) {
			t.Errorf("%v: effects %q, want %q", ev.in.Kind, e.trace, want)
		}
		<-logged
		if synctest.Wait(); len(started) > 0 {
			e.work = <-started
		}
	}
	pass(&event{}, "gate false", "send", "timer")
	pass(<-e.l.events, "gate false", "send", "timer")
	pass(<-e.l.events, "gate true", "register", "timer, running")
	<-time.After(e.l.core.Retry)
	pass(&event{}, "gate true, running", "send, running", "timer, running")
	pass(<-e.l.events, "gate true, running", "register, running", "timer, running")
	return e, pass
}

// The effects of a pass have an order: gate, witness, start or end of the run functions, call, timer, reports.
func TestPass_OrderOfEffects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := locktest.NewStore(locktest.Lease)
		_, pass := startEffects(t, store)
		overwritten := store.Snapshot()
		overwritten.Record.HolderIdentity = "x"
		overwritten.ResourceVersion += "0"
		snap, err := overwritten.Decode()
		harness.Must(t, err)
		pass(&event{in: core.Input{Kind: core.Seen, Snap: snap}, lock: overwritten}, "gate false, running", "remove, running", "timer")
	})
	synctest.Test(t, func(t *testing.T) {
		e, pass := startEffects(t, locktest.NewStore(locktest.Lease))
		<-time.After(e.l.core.Retry)
		pass(&event{in: core.Input{Kind: core.Stop}}, "gate true, running", "send", "timer")
	})
}

// pausedLog blocks while the channel is full.
type pausedLog struct {
	slog.Handler
	paused chan struct{}
}

func (h pausedLog) Handle(context.Context, slog.Record) error {
	h.paused <- struct{}{}
	<-h.paused
	return nil
}

func (h pausedLog) Enabled(context.Context, slog.Level) bool { return true }
func (h pausedLog) WithAttrs([]slog.Attr) slog.Handler       { return h }

// A rejection stays until a write of this candidate as holder succeeds: other results show nothing about its permission.
func TestNoteFailure_Webhook(t *testing.T) {
	l := &loop{}
	reply := func(op core.Op, result core.Result, err error, want string) {
		t.Helper()
		l.noteFailure(&event{in: core.Input{Kind: core.Replied, Result: result}, call: call{op: op, err: err}})
		if l.failed != want {
			t.Errorf("%q, want %q", l.failed, want)
		}
	}
	const down = `failed calling webhook "x"`
	reply(core.Renew, core.Unknown, errors.New(down), down)
	reply(core.Read, core.OK, nil, down)
	reply(core.Renew, core.OK, nil, "")
	reply(core.Renew, core.Unknown, errors.New("x"), "x")
	reply(core.Read, core.OK, nil, "")
}

func TestNoteRejection(t *testing.T) {
	for name, c := range map[string]struct {
		op     core.Op
		result core.Result
		barred bool
		want   string
	}{
		"acquired":             {core.Acquire, core.OK, false, ""},
		"conflict":             {core.Acquire, core.Conflict, false, "before"},
		"no reply":             {core.Acquire, core.Unknown, false, "before"},
		"read":                 {core.Read, core.OK, false, "before"},
		"request":              {core.SendRequest, core.OK, false, "before"},
		"rejected again":       {core.Renew, core.Refused, false, "now"},
		"release while barred": {core.Release, core.OK, true, "before"},
	} {
		l := &loop{rejected: "before"}
		l.state.Barred = c.barred
		l.noteRejection(&event{in: core.Input{Kind: core.Replied, Result: c.result}, call: call{op: c.op, err: errors.New("now")}})
		if l.rejected != c.want {
			t.Errorf("%s: %q", name, l.rejected)
		}
	}
}
