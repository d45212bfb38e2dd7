package k8sleaderelection_test

import (
	"strings"
	"testing"

	le "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock/locktest"
)

func TestWhatCannotBeKeptTogether(t *testing.T) {
	for want, change := range map[string]func(*le.LeaderElectionConfig){
		"give a lock on that":                 func(c *le.LeaderElectionConfig) { c.Lock = &k8sresourcelock.MultiLock{} },
		"give a ConfigMapLock or a LeaseLock": func(c *le.LeaderElectionConfig) { c.Lock = locktest.NewStore(locktest.Lease).Lock("a", "").Plain() },
		"a coordinator names one leader":      func(c *le.LeaderElectionConfig) { c.Coordinated = true },
		"act beside whom one has preempted":   func(c *le.LeaderElectionConfig) { c.PreemptImmediately = true },
	} {
		config := le.LeaderElectionConfig{
			Lock: locktest.NewStore(locktest.Lease).Lock("a", "stable").Locker, LeaseDuration: lease, RenewDeadline: renew, RetryPeriod: retry, Successor: true,
		}
		if err := config.Validate(); err != nil {
			t.Fatal(err)
		}
		change(&config)
		if err := config.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
