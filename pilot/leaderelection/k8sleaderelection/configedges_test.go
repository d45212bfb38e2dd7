package k8sleaderelection

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// whole has a value of its own in each field that decisions are made by.
func whole() LeaderElectionConfig {
	return LeaderElectionConfig{
		Lock:          locktest.NewStore(locktest.Lease).Lock("me", "stable").Locker,
		LeaseDuration: 30 * time.Second, RenewDeadline: 15 * time.Second, RetryPeriod: 7 * time.Second,
		DrainLimit: 3 * time.Second, StopLimit: 41 * time.Second, PeerGrace: 11 * time.Second, SyncWait: 13 * time.Second,
		Ranked: true, PreemptImmediately: true, ReleaseOnCancel: true,
	}
}

// Decisions are made by the configuration, field by field.
func TestTheConfigurationReachesTheCore(t *testing.T) {
	want := core.Config{
		Self: "me", Key: "stable", Ranked: true, Immediate: true, Release: true,
		Timing: core.Timing{
			Lease: 30 * time.Second, Validity: 15 * time.Second, Retry: 7 * time.Second,
			CallTimeout: 4 * time.Second, DrainLimit: 3 * time.Second, StopLimit: 41 * time.Second, PeerGrace: 11 * time.Second, SyncWait: 13 * time.Second,
			RankDelay: 25 * time.Millisecond, Patience: 2 * time.Second,
		},
	}
	got := whole().core()
	if got != want {
		t.Errorf("%+v\nwant\n%+v", got, want)
	}
	c := whole()
	c.Ranked, c.PreemptImmediately, c.ReleaseOnCancel, c.RetryPeriod = false, false, false, 40*time.Millisecond
	want.Ranked, want.Immediate, want.Release = false, false, false
	want.Retry, want.RankDelay, want.Patience = 40*time.Millisecond, 10*time.Millisecond, 20*time.Millisecond
	want.CallTimeout = (15*time.Second - 40*time.Millisecond) / 2
	got = c.core()
	if got != want {
		t.Errorf("%+v\nwant\n%+v", got, want)
	}
	c.KeyComparison = func(string) bool { return true }
	if !c.core().External {
		t.Error("a KeyComparison that is not asked")
	}
	if c.Coordinated = true; !c.core().Coordinated || whole().core().Coordinated {
		t.Error("it waits to be named, or does not")
	}
	if c.Successor = true; !c.core().Successor || whole().core().Successor {
		t.Error("it keeps the lock with others, or does not")
	}
	if c.Ranked = true; c.core().External {
		t.Error("a KeyComparison beside ranks")
	}
	elector, err := NewLeaderElector(whole())
	if err != nil {
		t.Fatal(err)
	}
	for _, once := range []bool{true, false} {
		mode := campaigning
		if once {
			mode = oneCycle
		}
		if is := newLoop(elector, mode).core; is.OneCycle != once || is.Lease != 30*time.Second {
			t.Errorf("one cycle: %v, want %v", is.OneCycle, once)
		}
	}
}

func TestDefaultsOfTheConfiguration(t *testing.T) {
	c := whole()
	c.DrainLimit, c.StopLimit = 0, 0
	c = c.withDefaults()
	// 30 s × 0.98 / 1.02 − 15 s
	if c.DrainLimit != 13823*time.Millisecond || c.StopLimit != time.Minute || c.MaxClockDrift != 0.02 || c.Name != c.Lock.Describe() {
		t.Errorf("%v, %v, %v, %q", c.DrainLimit, c.StopLimit, c.MaxClockDrift, c.Name)
	}
	c = whole()
	c.Name, c.MaxClockDrift = "mine", 0.01
	if c = c.withDefaults(); c.DrainLimit != 3*time.Second || c.StopLimit != 41*time.Second || c.MaxClockDrift != 0.01 || c.Name != "mine" {
		t.Errorf("%+v", c)
	}
}

// Each bound from both sides, and what is said names the value.
func TestBoundsOfTheConfiguration(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*LeaderElectionConfig)
		wrong  string
	}{
		"as it is":         {func(*LeaderElectionConfig) {}, ""},
		"a second's lease": {func(c *LeaderElectionConfig) { *c = short(*c, time.Second) }, ""},
		"less":             {func(c *LeaderElectionConfig) { *c = short(*c, 900*time.Millisecond) }, "LeaseDuration 900ms: "},
		"half seconds":     {func(c *LeaderElectionConfig) { c.LeaseDuration += time.Second / 2 }, "LeaseDuration 30.5s: "},
		"no retry":         {func(c *LeaderElectionConfig) { c.RetryPeriod = 0 }, "RetryPeriod 0s: "},
		"retry too long":   {func(c *LeaderElectionConfig) { c.RetryPeriod = 12500 * time.Millisecond }, "RenewDeadline 15s must be greater than RetryPeriod 12.5s times 1.2"},
		"renew too long":   {func(c *LeaderElectionConfig) { c.RenewDeadline = 30 * time.Second }, "LeaseDuration 30s must be greater than RenewDeadline 30s"},
		"no room to drain": {func(c *LeaderElectionConfig) { c.RenewDeadline, c.DrainLimit = 29*time.Second, 0 }, "RenewDeadline 29s leaves no time to drain within LeaseDuration 30s"},
		"all the room":     {func(c *LeaderElectionConfig) { c.DrainLimit = 13823 * time.Millisecond }, ""},
		"more":             {func(c *LeaderElectionConfig) { c.DrainLimit = 13824 * time.Millisecond }, "DrainLimit 13.824s do not fit"},
		"negative grace":   {func(c *LeaderElectionConfig) { c.PeerGrace = -1 }, "PeerGrace -1ns: "},
		"negative stop":    {func(c *LeaderElectionConfig) { c.StopLimit = -1 }, "StopLimit -1ns: "},
		"negative drift":   {func(c *LeaderElectionConfig) { c.MaxClockDrift = -0.1 }, "MaxClockDrift -0.1"},
		"all drift":        {func(c *LeaderElectionConfig) { c.MaxClockDrift = 1 }, "MaxClockDrift 1"},
		"no lock":          {func(c *LeaderElectionConfig) { c.Lock = nil }, "no Lock"},
	} {
		config := whole()
		c.change(&config)
		err := config.Validate()
		if (err != nil) != (c.wrong != "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v, want %q", name, err, c.wrong)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("RunOrDie went on with a configuration that is not valid")
		}
	}()
	RunOrDie(t.Context(), LeaderElectionConfig{})
}

func short(c LeaderElectionConfig, lease time.Duration) LeaderElectionConfig {
	c.LeaseDuration, c.RenewDeadline, c.RetryPeriod, c.DrainLimit = lease, 500*time.Millisecond, 100*time.Millisecond, 0
	return c
}

func TestTermsTravelInContexts(t *testing.T) {
	want := Term{LockUID: "u", Transitions: 3, Token: 9}
	if got, ok := TermFromContext(ContextWithTerm(t.Context(), want)); !ok || got != want {
		t.Errorf("%+v, %v", got, ok)
	}
	if _, ok := TermFromContext(t.Context()); ok {
		t.Error("a term out of nothing")
	}
}

func TestRanksOfKeys(t *testing.T) {
	for _, c := range []struct {
		ours, theirs string
		d            DefaultRevision
		want         bool
	}{
		{"canary", "stable", DefaultRevision{Synced: true, Revision: "canary"}, true},
		{"stable", "canary", DefaultRevision{Synced: true, Revision: "canary"}, false},
		{"canary", "stable", DefaultRevision{Revision: "canary"}, false},
		{"stable", "^stable", DefaultRevision{Synced: true}, true},
		{"^stable", "stable", DefaultRevision{Synced: true}, false},
	} {
		if got := Outranks(c.ours, c.theirs, c.d); got != c.want {
			t.Errorf("%s before %s, %+v: %v", c.ours, c.theirs, c.d, got)
		}
	}
}

// testReporter logs into a buffer.
func testReporter(t *testing.T) (*reporter, *bytes.Buffer) {
	t.Helper()
	out := &bytes.Buffer{}
	config := whole()
	config.Logger = slog.New(slog.NewTextHandler(out, nil))
	elector, err := NewLeaderElector(config)
	if err != nil {
		t.Fatal(err)
	}
	c := elector.core
	return newReporter(elector, &c), out
}

// A trouble is logged when it begins, when it becomes another one, and when it ends.
func TestEachTroubleIsLoggedOnce(t *testing.T) {
	r, out := testReporter(t)
	now := core.Instant(time.Hour)
	r.troubles.now = func() core.Instant { return now }
	lines := func(want string) {
		t.Helper()
		var got []string
		for line := range strings.Lines(out.String()) {
			_, line, _ = strings.Cut(line, "level=")
			level, _, _ := strings.Cut(line, " ")
			_, line, _ = strings.Cut(line, `msg="`)
			message, _, _ := strings.Cut(line, `"`)
			got = append(got, level+" "+message)
		}
		out.Reset()
		if strings.Join(got, "; ") != want {
			t.Errorf("%q, want %q", strings.Join(got, "; "), want)
		}
	}
	const cannot, can = "WARN the lock cannot be watched; polling until it can", "INFO the lock is being watched again"
	r.watching(nil)
	lines("")
	r.watching(errors.New("no"))
	r.watching(errors.New("still not"))
	lines(cannot)
	r.watching(nil)
	r.watching(nil)
	lines(can)
	now = now.After(quietFor - 1)
	r.watching(errors.New("no"))
	lines("") // back at once: it has to stay
	now = now.After(1)
	r.watching(errors.New("no"))
	lines(cannot)

	seen := func(content core.Content, lease time.Duration, unreadable error) {
		c := &change{before: core.State{Learned: 1}, after: core.State{Learned: 2}, lock: k8sresourcelock.Snapshot{Unreadable: unreadable}}
		c.after.Snap = core.Snapshot{Exists: true, Content: content, Record: core.Record{Holder: "a", Lease: lease}}
		r.record(c)
	}
	const unreadable, absurd = "WARN the lock's record cannot be read; it counts as held until unchanged for a lease",
		"WARN the holder's lease duration is absurd; a shorter one counts"
	const readable = "INFO the lock's record can be read again"
	seen(core.Readable, time.Minute, nil)
	lines("")
	seen(core.Unreadable, 0, errors.New("half"))
	seen(core.Unreadable, 0, errors.New("half"))
	lines(unreadable)
	seen(core.Unreadable, 0, errors.New("other half"))
	lines(unreadable)
	seen(core.Readable, time.Minute, nil)
	seen(core.Readable, time.Minute, nil)
	lines(readable)
	bound := r.core.LeaseBound()
	seen(core.Readable, bound, nil)
	lines("")
	seen(core.Readable, bound+time.Second, nil)
	seen(core.Readable, bound+time.Second, nil)
	lines(absurd)
	seen(core.Readable, bound, nil)
	lines(readable)
}
