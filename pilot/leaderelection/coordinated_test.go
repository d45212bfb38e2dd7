package leaderelection

import (
	"strings"
	"testing"

	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
)

// A coordinated election sets Coordinated and the name of its candidate in the configuration of the elector. An election that cannot
// be coordinated is rejected, with advice.
func TestCoordinatedElection(t *testing.T) {
	of := func(change func(*Config)) (*LeaderElection, error) {
		cfg := Config{
			Namespace: "istio-system", ElectionID: "new", Identity: "a", Revision: "canary", Remote: true, Lock: LockTypeLease,
			Coordination: &Coordination{
				Strategy: coordination.DefaultRevision, BinaryVersion: "1.2.3", EmulationVersion: "1.2.0", PodUID: "u",
				Labels: map[string]string{coordination.PriorityLabel: "7"},
			},
		}
		change(&cfg)
		return New(unreachable(t), cfg)
	}
	l, err := of(func(*Config) {})
	if err != nil {
		t.Fatal(err)
	}
	c := l.electorConfig(l.client.Kube())
	if !c.Coordinated || c.Lock.Identity() != "a.new" || l.Status().Identity != "a.new" || l.Status().Strategy != coordination.DefaultRevision {
		t.Errorf("%+v, %+v", c, l.Status())
	}
	p := l.cfg.publication(l.client.Kube())
	for key, want := range map[string]string{
		coordination.RevisionLabel: "canary", coordination.LocationLabel: coordination.LocationRemote, coordination.PriorityLabel: "7",
	} {
		if p.Labels[key] != want {
			t.Errorf("label %s is %q, want %q", key, p.Labels[key], want)
		}
	}
	if p.Pod != "a" || p.Lease != "new" || p.Namespace != "istio-system" || p.BinaryVersion != "1.2.3" || p.EmulationVersion != "1.2.0" || p.PodUID != "u" {
		t.Errorf("%+v", p)
	}
	for want, change := range map[string]func(*Config){
		"requires Lock LockTypeLease": func(c *Config) { c.Lock = LockTypeConfigMap },
		"finish the migration":        func(c *Config) { c.Predecessor = &Predecessor{Name: "old", Lock: LockTypeConfigMap} },
		"do not preempt":              func(c *Config) { c.PreemptImmediately = true },
		"use incumbent.dev/Defau":     func(c *Config) { c.Coordination.Strategy = "Zone" },
		"binary version":              func(c *Config) { c.Coordination.BinaryVersion = "v1.2" },
	} {
		if _, err := of(change); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
