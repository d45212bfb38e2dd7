package verdict

import (
	"strings"
	"testing"
	"time"
)

// Each log contains one act at a leader stable-1 and is checked with a course. The lease is 6 s, the retry period 1 s.
func TestCourse(t *testing.T) {
	flip := Course{Ended: HandedOver, Began: Nominated, Leader: AnotherPod}
	stop := Course{Ended: Released, Began: Acquired, Leader: AnotherPod}
	lose := Course{Ended: Taken, Began: Overwrote, Leader: AnotherPod, Waited: true}
	kill := Course{Ended: Reclaimed, Began: Reclaimed, Leader: SamePod, Or: &lose}
	remove := Course{Ended: Deleted, Began: Created}
	corrupt := Course{Ended: Corrupted, Began: Overwrote, Waited: true}
	after := func(seconds int, pod string, transitions int) func(*script) {
		return func(s *script) {
			s.clock = s.clock.Add(time.Duration(seconds-1) * time.Second)
			revision, _, _ := strings.Cut(pod, "-")
			s.lock(pod, bundles, pod, revision, transitions)
		}
	}
	release := func(s *script) { s.lock("stable-1", bundles, "", "", 1) }
	handover := func(s *script) { s.handover("stable-1", "canary-1", 2) }
	deleted := func(s *script) { s.remove("admin", "leases", home, bundles) }
	for name, c := range map[string]struct {
		course   Course
		revision string
		act      []func(*script)
		want     string
	}{
		"handover":                  {flip, "canary", []func(*script){handover}, ""},
		"release":                   {stop, "stable", []func(*script){release, after(1, "stable-2", 2)}, ""},
		"release, lower rank first": {stop, "canary", []func(*script){release, after(1, "stable-2", 2), func(s *script) { s.handover("stable-2", "canary-1", 3) }}, ""},
		"expiry":                    {lose, "stable", []func(*script){after(6, "stable-2", 2)}, ""},
		"restart":                   {kill, "stable", []func(*script){after(1, "stable-1", 2)}, ""},
		"late restart":              {kill, "stable", []func(*script){after(6, "stable-2", 2)}, ""},
		"deletion":                  {remove, "stable", []func(*script){deleted, after(1, "stable-1", 1)}, ""},
		"coordinator":               {Course{Ended: Released, Began: Nominated}, "stable", []func(*script){release, func(s *script) { s.lock("coordinator", bundles, "stable-2", "stable", 1) }, after(1, "stable-2", 1)}, ""},
		"coordinator in the same Pod": {Course{Ended: Released, Began: Nominated}, "stable", []func(*script){release, func(s *script) {
			s.put("stable-2", "update", "leases", home, bundles, fields{
				"metadata": fields{"annotations": fields{"leader.istio.io/holder-key": "stable", "incumbent.dev/strategy": "x"}},
				"spec":     fields{"holderIdentity": "stable-2." + bundles, "leaseTransitions": 1, "leaseDurationSeconds": 5},
			})
		}, after(1, "stable-2", 2)}, ""},
		"no release":                  {stop, "stable", []func(*script){after(6, "stable-2", 2)}, `the term of stable-1 was "taken", want "released"`},
		"flip without handover":       {flip, "canary", []func(*script){release, after(1, "canary-1", 2)}, `was "released", want "handed over"`},
		"preempted":                   {flip, "canary", []func(*script){after(1, "canary-1", 2)}, `was "taken"`},
		"before the expiry":           {lose, "stable", []func(*script){after(3, "stable-2", 2)}, "before the lease of 6s expired"},
		"restart of another":          {kill, "stable", []func(*script){after(1, "stable-2", 2)}, "before the lease"},
		"leader did not change":       {stop, "stable", []func(*script){release, after(1, "stable-1", 2)}, "stable-1 leads again"},
		"wrong revision":              {stop, "canary", []func(*script){release, after(1, "stable-2", 2)}, "want a leader of canary"},
		"second change":               {stop, "canary", []func(*script){release, after(1, "stable-2", 2), after(6, "canary-1", 3)}, `was "taken", want "handed over"`},
		"no leader":                   {stop, "stable", []func(*script){release}, "no new term began"},
		"leader stopped again":        {flip, "canary", []func(*script){handover, func(s *script) { s.lock("canary-1", bundles, "", "", 2) }}, "has been released"},
		"released instead of deleted": {remove, "stable", []func(*script){release, after(1, "stable-1", 2)}, `want "deleted"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := begun(t)
			s.lock("stable-1", bundles, "stable-1", "stable", 1)
			for _, step := range c.act {
				step(s)
			}
			err := c.course.Check(s.history().Terms(home, bundles), 1, c.revision, Timing{6 * time.Second, time.Second})
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	t.Run("corruption", func(t *testing.T) {
		for seconds, want := range map[int]bool{3: false, 6: true} {
			s := newScript(t)
			configMap := func(who, record string) {
				s.put(who, "update", "configmaps", home, "legacy", fields{"metadata": fields{"annotations": fields{"control-plane.alpha.kubernetes.io/leader": record}}})
			}
			configMap("stable-1", `{"holderIdentity":"stable-1","holderKey":"stable","leaderTransitions":1}`)
			configMap("admin", "broken")
			s.clock = s.clock.Add(time.Duration(seconds-1) * time.Second)
			configMap("stable-2", `{"holderIdentity":"stable-2","holderKey":"stable","leaderTransitions":2}`)
			err := corrupt.Check(s.history().Terms(home, "legacy"), 1, "stable", Timing{6 * time.Second, time.Second})
			if (err == nil) != want {
				t.Errorf("replaced after %d s: %v", seconds, err)
			}
		}
	})
}
