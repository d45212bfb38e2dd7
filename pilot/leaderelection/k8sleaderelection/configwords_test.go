package k8sleaderelection_test

import (
	"context"
	"strings"
	"testing"
	"time"

	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

// Each mistake is named, and what is just within a bound is none.
func TestConfigurationsAtTheirBounds(t *testing.T) {
	store := locktest.NewStore(locktest.ConfigMap)
	good := le.LeaderElectionConfig{Lock: store.Lock("a", "stable").Locker, LeaseDuration: lease, RenewDeadline: renew, RetryPeriod: retry}
	for name, c := range map[string]struct {
		change func(*le.LeaderElectionConfig)
		want   []string // nothing: it is valid
	}{
		"good":           {func(*le.LeaderElectionConfig) {}, nil},
		"identity":       {func(c *le.LeaderElectionConfig) { c.Lock = store.Lock("a b", "stable").Locker }, []string{"identity"}},
		"a plain lock's": {func(c *le.LeaderElectionConfig) { c.Lock = store.Lock("a b", "stable").Plain() }, []string{"identity"}},
		"the lock": {func(c *le.LeaderElectionConfig) {
			c.Lock = &k8sresourcelock.ConfigMapLock{LockConfig: k8sresourcelock.ResourceLockConfig{Identity: "a"}}
		}, []string{"no Client"}},
		"no lease":           {func(c *le.LeaderElectionConfig) { c.LeaseDuration = 0 }, []string{"LeaseDuration 0s: the record"}},
		"half a second":      {func(c *le.LeaderElectionConfig) { c.LeaseDuration += time.Second / 2 }, []string{"LeaseDuration 30.5s: the record"}},
		"retry, too long":    {func(c *le.LeaderElectionConfig) { c.RetryPeriod = 12500 * time.Millisecond }, []string{"RenewDeadline 15s must be greater than RetryPeriod"}},
		"retry, just":        {func(c *le.LeaderElectionConfig) { c.RetryPeriod = 12499 * time.Millisecond }, nil},
		"negative drain":     {func(c *le.LeaderElectionConfig) { c.DrainLimit = -1 }, []string{"DrainLimit -1ns: must not"}},
		"negative stop":      {func(c *le.LeaderElectionConfig) { c.StopLimit = -1 }, []string{"StopLimit -1ns: must not"}},
		"negative grace":     {func(c *le.LeaderElectionConfig) { c.PeerGrace = -1 }, []string{"PeerGrace -1ns: must not"}},
		"negative sync wait": {func(c *le.LeaderElectionConfig) { c.SyncWait = -1 }, []string{"SyncWait -1ns: must not"}},
		"no room to drain":   {func(c *le.LeaderElectionConfig) { c.MaxClockDrift = 1.0 / 3 }, []string{"leaves no time to drain"}},
	} {
		config := good
		c.change(&config)
		err := config.Validate()
		if err == nil && c.want != nil || err != nil && c.want == nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q in it", name, err, want)
			}
		}
	}
}

func TestStatusOfALeader(t *testing.T) {
	alone(t, func(t *testing.T, store *locktest.Store) {
		a := prepare(t, store, "a", func(c *le.LeaderElectionConfig) { c.DrainLimit = 3 * time.Second })
		a.setDefaultRevision(le.DefaultRevision{Synced: true, Revision: "stable"})
		if s := a.Status(); s.Phase != "following" || s.Leading || a.DrainLimit() != 3*time.Second {
			t.Errorf("before it runs: %+v, drain limit %v", s, a.DrainLimit())
		}
		began := time.Now()
		a.start(t)
		pass(time.Second)
		s := a.Status()
		is := record(store)
		if s.Phase != "leading" || s.Reason == "" || s.Since.Before(began) || !s.Leading || s.ValidFor > renew || s.ValidFor < renew-time.Second ||
			s.Term == (le.Term{}) || s.Holder != "a" || s.HolderKey != "stable" || s.Transitions != is.LeaderTransitions || s.Unfit ||
			s.Default != (le.DefaultRevision{Synced: true, Revision: "stable"}) || a.GetLeader() != "a" {
			t.Errorf("%+v", s)
		}
		store.Put("x", func() k8sresourcelock.LeaderElectionRecord {
			is.HolderIdentity, is.HolderKey, is.LeaderTransitions = "x", "canary", 7
			return is
		}())
		pass(time.Second)
		if s := a.Status(); s.Leading || s.ValidFor != 0 || s.Holder != "x" || s.HolderKey != "canary" || s.Transitions != 7 || s.Reason == "" {
			t.Errorf("%+v", s)
		}
	})
}

func TestRunSaysWhatEndedIt(t *testing.T) {
	alone(t, func(t *testing.T, store *locktest.Store) {
		a := prepare(t, store, "a")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			a.Run(ctx)
		}()
		pass(time.Second)
		a.Run(t.Context()) // beside the first
		if !strings.Contains(a.logged(), "running already") {
			t.Errorf("the second one says\n%s", a.logged())
		}
		before := strings.Count(a.logged(), "ended with an error")
		cancel()
		<-ended
		if n := strings.Count(a.logged(), "ended with an error"); n != before || n != 1 {
			t.Errorf("a good end says\n%s", a.logged())
		}
	})
	alone(t, func(t *testing.T, store *locktest.Store) {
		l := store.Lock("a", "stable")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			le.RunOrDie(ctx, le.LeaderElectionConfig{Lock: l.Locker, LeaseDuration: lease, RenewDeadline: renew, RetryPeriod: retry, ReleaseOnCancel: true, Clock: bubbleClock()})
		}()
		pass(time.Second)
		if record(store).HolderIdentity != "a" {
			t.Error("it does not take part")
		}
		cancel()
		<-ended
		defer func() {
			if recover() == nil {
				t.Error("a configuration that is not valid is run")
			}
		}()
		le.RunOrDie(ctx, le.LeaderElectionConfig{})
	})
}
