package elections

import (
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
)

// TestConfigurationErrors: a wrong duration is refused when the election is made, and the
// error says which one to change, by how much where that is known. It needs no server.
func TestConfigurationErrors(t *testing.T) {
	t.Parallel()
	client, err := kube.NewClient(&rest.Config{Host: "https://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	type config = leaderelection.Config
	for name, c := range map[string]struct {
		change func(*config)
		want   []string // none: it is a good one
	}{
		"defaults":            {change: func(*config) {}},
		"no election":         {func(c *config) { c.ElectionID = "" }, []string{"no ElectionID: name the election"}},
		"no namespace":        {func(c *config) { c.Namespace = "" }, []string{"no Namespace: name the namespace"}},
		"no such namespace":   {func(c *config) { c.Namespace = "A b" }, []string{`namespace "A b"`}},
		"an identity in two":  {func(c *config) { c.Identity = "a b" }, []string{`identity "a b"`}},
		"a revision in two":   {func(c *config) { c.Revision = "a b" }, []string{`the Revision "a b"`}},
		"an unknown lock":     {func(c *config) { c.Lock = 9 }, []string{"the Lock LockType(9) is none of ConfigMapLock, LeaseLock, MultiLock"}},
		"negative lease":      {func(c *config) { c.LeaseDuration = -1 }, []string{"LeaseDuration -1ns: the record carries whole seconds, at least one"}},
		"lease of half":       {func(c *config) { c.LeaseDuration = 30500 * time.Millisecond }, []string{"LeaseDuration 30.5s: the record carries whole seconds"}},
		"lease too short":     {func(c *config) { c.LeaseDuration = 10 * time.Second }, []string{"LeaseDuration 10s must be greater than RenewDeadline 15s: lengthen LeaseDuration"}},
		"deadline too long":   {func(c *config) { c.RenewDeadline = 30 * time.Second }, []string{"LeaseDuration 30s must be greater than RenewDeadline 30s: lengthen LeaseDuration"}},
		"deadline too short":  {func(c *config) { c.RenewDeadline = 8 * time.Second }, []string{"RenewDeadline 8s must be greater than RetryPeriod 7.5s times 1.2: lengthen RenewDeadline or shorten RetryPeriod"}},
		"negative retry":      {func(c *config) { c.RetryPeriod = -time.Second }, []string{"RetryPeriod -1s: must be greater than zero"}},
		"drain fits exactly":  {change: func(c *config) { c.DrainLimit = 13823 * time.Millisecond }},
		"drain by too much":   {func(c *config) { c.DrainLimit = 13824 * time.Millisecond }, []string{"RenewDeadline 15s and DrainLimit 13.824s do not fit into LeaseDuration 30s with clocks off by 0.02", "lengthen LeaseDuration, or shorten RenewDeadline or DrainLimit (at most 13.823s)"}},
		"no room for a drain": {func(c *config) { c.RenewDeadline = 29 * time.Second }, []string{"RenewDeadline 29s leaves no time to drain within LeaseDuration 30s with clocks off by 0.02: lengthen LeaseDuration, or shorten RenewDeadline (to less than 28.823s)"}},
		"negative drain":      {func(c *config) { c.DrainLimit = -1 }, []string{"DrainLimit -1ns: must not be negative"}},
		"negative stop":       {func(c *config) { c.StopLimit = -1 }, []string{"StopLimit -1ns: must not be negative"}},
		"negative grace":      {func(c *config) { c.PeerGrace = -1 }, []string{"PeerGrace -1ns: must not be negative"}},
		"all that is wrong": {
			func(c *config) { c.ElectionID, c.Namespace, c.Revision = "", "", "a b" },
			[]string{"no ElectionID", "no Namespace", `the Revision "a b"`},
		},
		"durations all wrong": {
			func(c *config) { c.LeaseDuration, c.RetryPeriod, c.PeerGrace = time.Second, time.Minute, -1 },
			[]string{"LeaseDuration 1s must be", "RenewDeadline 15s must be", "PeerGrace -1ns"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config{Namespace: "istio-system", ElectionID: election, Identity: "a", Revision: "stable", Lock: leaderelection.LeaseLock}
			c.change(&cfg)
			le, err := leaderelection.New(client, cfg)
			if len(c.want) == 0 {
				if err != nil || le == nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if err == nil || le != nil {
				t.Fatalf("accepted: %v, %v", le, err)
			}
			for _, want := range append(c.want, "election ", "in namespace ") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error is\n%v\nand lacks\n%s", err, want)
				}
			}
		})
	}
	if _, err := leaderelection.New(nil, leaderelection.Config{}); err == nil || !strings.Contains(err.Error(), "no client") {
		t.Errorf("without a client: %v", err)
	}
}
