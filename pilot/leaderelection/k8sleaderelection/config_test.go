package k8sleaderelection

import (
	"strings"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// testConfig returns a valid configuration with a different value in each duration.
func testConfig() LeaderElectionConfig {
	return LeaderElectionConfig{
		Lock:          locktest.NewStore(locktest.Lease).Lock("me", "stable").Lock,
		LeaseDuration: 30 * time.Second, RenewDeadline: 15 * time.Second, RetryPeriod: 7 * time.Second,
		DrainLimit: 3 * time.Second, StopLimit: 41 * time.Second, PeerGrace: 11 * time.Second, SyncWait: 13 * time.Second,
	}
}

func TestConfigCore(t *testing.T) {
	if JitterFactor != core.JitterFactor {
		t.Error("the core has another JitterFactor")
	}
	timing := core.Timing{
		Lease: 30 * time.Second, Validity: 15 * time.Second, Retry: 7 * time.Second,
		DrainLimit: 3 * time.Second, StopLimit: 41 * time.Second, PeerGrace: 11 * time.Second, SyncWait: 13 * time.Second,
		RankDelay: 25 * time.Millisecond, Patience: 2 * time.Second,
	}
	compare := func(string) bool { return true }
	for name, c := range map[string]struct {
		change func(*LeaderElectionConfig)
		want   core.Config
	}{
		"plain":       {func(*LeaderElectionConfig) {}, core.Config{}},
		"ranked":      {func(c *LeaderElectionConfig) { c.Ranked = true; c.KeyComparison = compare }, core.Config{Ranked: true}},
		"compared":    {func(c *LeaderElectionConfig) { c.KeyComparison = compare }, core.Config{External: true}},
		"immediate":   {func(c *LeaderElectionConfig) { c.PreemptImmediately = true }, core.Config{Immediate: true}},
		"release":     {func(c *LeaderElectionConfig) { c.ReleaseOnCancel = true }, core.Config{Release: true}},
		"coordinated": {func(c *LeaderElectionConfig) { c.Coordinated = true }, core.Config{Coordinated: true}},
	} {
		config := testConfig()
		c.change(&config)
		c.want.Self = "me"
		c.want.Key = "stable"
		c.want.Timing = timing
		c.want.Resolution = 1 // a Lease
		if got := config.core(); got != c.want {
			t.Errorf("%s: %+v\nwant\n%+v", name, got, c.want)
		}
	}
	c := testConfig()
	c.RetryPeriod = 40 * time.Millisecond
	timing.Retry = 40 * time.Millisecond
	timing.RankDelay = 10 * time.Millisecond
	timing.Patience = 20 * time.Millisecond
	if got := c.timing(); got != timing {
		t.Errorf("%+v\nwant\n%+v", got, timing)
	}
}

func TestConfigDefaults(t *testing.T) {
	c := testConfig()
	c.DrainLimit = 0
	c.StopLimit = 0
	c = c.withDefaults()
	// 30 s × 0.98 / 1.02 − 15 s
	if c.DrainLimit != 13823*time.Millisecond || c.StopLimit != 15*time.Second || c.Name != c.Lock.Describe() {
		t.Errorf("%v, %v, %q", c.DrainLimit, c.StopLimit, c.Name)
	}
	c = testConfig()
	c.Name = "mine"
	if c = c.withDefaults(); c.DrainLimit != 3*time.Second || c.StopLimit != 41*time.Second || c.Name != "mine" {
		t.Errorf("%+v", c)
	}
}

func TestConfigValidate(t *testing.T) {
	short := func(lease time.Duration) func(*LeaderElectionConfig) {
		return func(c *LeaderElectionConfig) {
			c.LeaseDuration = lease
			c.RenewDeadline = 500 * time.Millisecond
			c.RetryPeriod = 100 * time.Millisecond
			c.DrainLimit = 0
		}
	}
	store := locktest.NewStore(locktest.Lease)
	configMap := locktest.NewStore(locktest.ConfigMap).Lock("me", "").Lock
	coordinated := func(change func(*LeaderElectionConfig)) func(*LeaderElectionConfig) {
		return func(c *LeaderElectionConfig) { c.Coordinated = true; change(c) }
	}
	for name, c := range map[string]struct {
		change func(*LeaderElectionConfig)
		want   string // empty: valid
	}{
		"valid":              {func(*LeaderElectionConfig) {}, ""},
		"shortest lease":     {short(time.Second), ""},
		"short lease":        {short(900 * time.Millisecond), "LeaseDuration 900ms: "},
		"half second":        {func(c *LeaderElectionConfig) { c.LeaseDuration += time.Second / 2 }, "LeaseDuration 30.5s: "},
		"Lease, short retry": {func(c *LeaderElectionConfig) { c.RetryPeriod = 100 * time.Millisecond }, ""},
		"ConfigMap":          {func(c *LeaderElectionConfig) { c.Lock = configMap; c.RetryPeriod = time.Second }, ""},
		"ConfigMap, short retry": {
			func(c *LeaderElectionConfig) { c.Lock = configMap; c.RetryPeriod = time.Second - 1 },
			"RetryPeriod 999.999999ms with a *k8sresourcelock.ConfigMapLock: must be at least a second",
		},
		"zero retry":        {func(c *LeaderElectionConfig) { c.RetryPeriod = 0 }, "RetryPeriod 0s: "},
		"negative retry":    {func(c *LeaderElectionConfig) { c.RetryPeriod = -time.Second }, "RetryPeriod -1s: "},
		"longest retry":     {func(c *LeaderElectionConfig) { c.RetryPeriod = 12499 * time.Millisecond }, ""},
		"long retry":        {func(c *LeaderElectionConfig) { c.RetryPeriod = 12500 * time.Millisecond }, "RenewDeadline 15s must be greater than RetryPeriod 12.5s times 1.2"},
		"long deadline":     {func(c *LeaderElectionConfig) { c.RenewDeadline = 30 * time.Second }, "LeaseDuration 30s must be greater than RenewDeadline 30s"},
		"no room to drain":  {func(c *LeaderElectionConfig) { c.RenewDeadline = 29 * time.Second; c.DrainLimit = 0 }, "RenewDeadline 29s leaves no time to drain within LeaseDuration 30s"},
		"longest drain":     {func(c *LeaderElectionConfig) { c.DrainLimit = 13823 * time.Millisecond }, ""},
		"long drain":        {func(c *LeaderElectionConfig) { c.DrainLimit = 13824 * time.Millisecond }, "DrainLimit 13.824s do not fit"},
		"negative drain":    {func(c *LeaderElectionConfig) { c.DrainLimit = -1 }, "DrainLimit -1ns: "},
		"negative stop":     {func(c *LeaderElectionConfig) { c.StopLimit = -1 }, "StopLimit -1ns: "},
		"negative grace":    {func(c *LeaderElectionConfig) { c.PeerGrace = -1 }, "PeerGrace -1ns: "},
		"negative sync":     {func(c *LeaderElectionConfig) { c.SyncWait = -1 }, "SyncWait -1ns: "},
		"no lock":           {func(c *LeaderElectionConfig) { c.Lock = nil }, "no Lock"},
		"no identity":       {func(c *LeaderElectionConfig) { c.Lock = store.Lock("", "").Lock }, "identity"},
		"space in identity": {func(c *LeaderElectionConfig) { c.Lock = store.Lock("a b", "").Lock }, "identity"},
		"long identity":     {func(c *LeaderElectionConfig) { c.Lock = store.Lock(strings.Repeat("x", 300), "").Lock }, "identity"},
		"coordinated":       {coordinated(func(*LeaderElectionConfig) {}), ""},
		"coordinated ConfigMap": {
			coordinated(func(c *LeaderElectionConfig) { c.Lock = configMap }), "Coordinated with a *k8sresourcelock.ConfigMapLock: ",
		},
		"coordinated plain lock": {
			coordinated(func(c *LeaderElectionConfig) { c.Lock = store.Lock("a", "").Plain() }), "which does not store what a coordinator writes. ",
		},
		"coordinated and compared": {
			coordinated(func(c *LeaderElectionConfig) { c.KeyComparison = func(string) bool { return true } }), "Coordinated with a KeyComparison: ",
		},
		"coordinated and immediate": {coordinated(func(c *LeaderElectionConfig) { c.PreemptImmediately = true }), "Coordinated with PreemptImmediately: "},
	} {
		config := testConfig()
		c.change(&config)
		err := config.Validate()
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
