package k8sleaderelection

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// A KeyComparison is asked about the newest record that is known, if it names a holder.
func TestWhomAKeyComparisonIsAskedAbout(t *testing.T) {
	l := stillLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Locker, func(c *LeaderElectionConfig) {
		c.KeyComparison = func(key string) bool { return key == "low" }
	})
	l.state.Snap.Record = core.Record{Holder: "x", Key: "high"}
	low, high := core.Record{Holder: "y", Key: "low"}, core.Record{Holder: "y", Key: "high"}
	for name, c := range map[string]struct {
		kind   core.Kind
		result core.Result
		record core.Record
		want   bool
	}{
		"seen":              {core.Seen, core.Unknown, low, true},
		"read":              {core.Replied, core.OK, low, true},
		"not read":          {core.Replied, core.Refused, low, false},
		"neither":           {core.Unwatched, core.OK, low, false},
		"seen with no rank": {core.Seen, core.OK, high, false},
		"seen free":         {core.Seen, core.OK, core.Record{Key: "low"}, false},
	} {
		if got := l.beats(&core.Input{Kind: c.kind, Result: c.result, Snap: core.Snapshot{Record: c.record}}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if l.core.External = false; l.beats(&core.Input{Kind: core.Seen, Snap: core.Snapshot{Record: low}}) {
		t.Error("asked though there is none")
	}
}

// What others may know of the state.
func TestWhatIsPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var leaders []string
		l := stillLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Locker, func(c *LeaderElectionConfig) {
			c.Callbacks.OnNewLeader = func(name string) { leaders = append(leaders, name) }
		})
		publish := func(kind core.Kind, edit func(*core.State)) view {
			before := l.state
			before.Flight.Sent.Mono = 300
			edit(&l.state)
			<-time.After(time.Second)
			l.publish(&change{before: before, after: l.state, in: core.Input{Kind: kind}})
			l.helpers.Wait()
			return *l.le.view.Load()
		}
		cover := core.Validity{Mono: 1 << 60, Boot: 1 << 60, Wall: 1 << 60}
		if v := publish(core.Seen, func(s *core.State) { s.Validity, s.Phase = cover, core.Leading }); v.known || v.acked != 0 || v.cover != cover || !v.changed.Equal(time.Now()) {
			t.Errorf("no reply: %+v", v)
		}
		began := time.Now()
		if v := publish(core.Replied, func(s *core.State) { s.Validity.Mono++ }); v.acked != 300 || v.cover != l.state.Validity || !v.changed.Equal(began) {
			t.Errorf("a reply that covers: %+v", v)
		}
		l.acked = 7
		if v := publish(core.Replied, func(s *core.State) { s.Known = core.Current }); v.acked != 7 || !v.known {
			t.Errorf("a reply that does not: %+v", v)
		}
		if v := publish(core.Replied, func(s *core.State) { s.Validity = core.Validity{} }); v.acked != 7 {
			t.Errorf("a reply that ends the cover: %+v", v)
		}
		if v := publish(core.Seen, func(s *core.State) { s.Validity, s.Phase = cover, core.Draining }); v.cover != cover {
			t.Errorf("it drains: %+v", v)
		}
		if v := publish(core.Seen, func(s *core.State) { s.Drain.Lost = core.ValidityLost }); v.cover != (core.Validity{}) {
			t.Errorf("it drains, and has lost the lock: %+v", v)
		}
		held := core.Snapshot{Exists: true, Content: core.Readable, Record: core.Record{Holder: "x", Key: "k", Transitions: 3}}
		if v := publish(core.Seen, func(s *core.State) { s.Snap = held }); v.holder != "x" || v.key != "k" || v.count != 3 {
			t.Errorf("a holder: %+v", v)
		}
		publish(core.Seen, func(s *core.State) { s.Unfit = true })
		if v := publish(core.Seen, func(s *core.State) { s.Snap.Exists = false }); v.holder != "" {
			t.Errorf("it is gone: %+v", v)
		}
		if v := publish(core.Seen, func(s *core.State) { s.Snap = held; s.Snap.Content = core.Unreadable }); v.holder != "" {
			t.Errorf("it cannot be read: %+v", v)
		}
		if len(leaders) != 1 || leaders[0] != "x" {
			t.Errorf("new leaders %q", leaders)
		}
	})
}

// A term that is over is no term, whatever the object that shows it.
func TestATermThatIsOverHasNoToken(t *testing.T) {
	l := stillLoop(t, locktest.NewStore(locktest.ConfigMap).Lock("a", "stable").Locker)
	l.publicTerm = Term{LockUID: "u", Transitions: 3, Token: 7}
	c := &change{before: core.State{Term: core.Term{UID: core.UID{First: "u"}, Transitions: 3}}}
	c.lock.UID, c.lock.ResourceVersion = "u", "9"
	if l.setTerm(c); l.publicTerm != (Term{}) {
		t.Errorf("term %+v", l.publicTerm)
	}
}

// A campaign tells the end of each of its terms, when its functions have returned.
func TestACampaignTellsTheEndOfEachTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		epoch := time.Now()
		var lives, stopped atomic.Int32
		le, err := NewLeaderElector(LeaderElectionConfig{
			Lock:          locktest.NewStore(locktest.Lease).Lock("a", "stable").Locker,
			LeaseDuration: 30 * time.Second, RenewDeadline: 15 * time.Second, RetryPeriod: 7500 * time.Millisecond, ReleaseOnCancel: true,
			Clock: NewClock(func() int64 { return int64(time.Since(epoch)) }),
			Callbacks: LeaderCallbacks{OnStoppedLeading: func() {
				if stopped.Add(1); lives.Load() != 0 {
					t.Error("told while a function runs")
				}
			}},
			RunFunctions: []func(context.Context) error{func(ctx context.Context) error {
				lives.Add(1)
				<-ctx.Done()
				<-time.After(time.Second)
				lives.Add(-1)
				return nil
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- le.Campaign(ctx) }()
		<-time.After(time.Minute)
		le.StepDown()
		<-time.After(10 * time.Minute)
		if stopped.Load() != 1 || lives.Load() != 1 {
			t.Errorf("after a step-down: told %d times, %d functions run", stopped.Load(), lives.Load())
		}
		cancel()
		if err := <-ended; err != nil || stopped.Load() != 2 {
			t.Errorf("%v, told %d times", err, stopped.Load())
		}
	})
}
