package verdict

import (
	"strings"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/audit"
	"incumbent.dev/incumbent/internal/testutil/auditlog"
)

// Each log contains one act at a leader stable-1 and is checked with a course. The lease is 6 s, the retry period 1 s.
func TestCourse(t *testing.T) {
	flip := Course{Ended: audit.HandedOver, Began: audit.Nominated, Leader: AnotherPod}
	stop := Course{Ended: audit.Released, Began: audit.Acquired, Leader: AnotherPod}
	lose := Course{Ended: audit.Taken, Began: audit.Overwrote, Leader: AnotherPod, Waited: true}
	kill := Course{Ended: audit.Reclaimed, Began: audit.Reclaimed, Leader: SamePod, Or: &lose}
	remove := Course{Ended: audit.Deleted, Began: audit.Created}
	choose := Course{Ended: audit.Released, Began: audit.Nominated}
	corrupt := Course{Ended: audit.Corrupted, Began: audit.Overwrote, Waited: true}
	const (
		release  = "lock stable-1 - 1; "
		handover = "lock stable-1 canary-1 2; lock canary-1 canary-1 2; "
		second   = "lock stable-2 stable-2 2; "
	)
	for name, c := range map[string]struct {
		course              Course
		revision, act, want string
	}{
		"handover":                    {flip, "canary", handover, ""},
		"release":                     {stop, "stable", release + second, ""},
		"release, lower rank first":   {stop, "canary", release + second + "lock stable-2 canary-1 3; lock canary-1 canary-1 3", ""},
		"expiry":                      {lose, "stable", "wait 5; " + second, ""},
		"restart":                     {kill, "stable", "lock stable-1 stable-1 2", ""},
		"late restart":                {kill, "stable", "wait 5; " + second, ""},
		"deletion":                    {remove, "stable", "remove leases istio-system bundles; lock stable-1 stable-1 1", ""},
		"coordinator":                 {choose, "stable", release + "lock coordinator stable-2 1; lock stable-2 stable-2 1", ""},
		"no release":                  {stop, "stable", "wait 5; " + second, `the term of stable-1 was "taken", want "released"`},
		"flip without handover":       {flip, "canary", release + "lock canary-1 canary-1 2", `was "released", want "handed over"`},
		"preempted":                   {flip, "canary", "lock canary-1 canary-1 2", `was "taken"`},
		"before the expiry":           {lose, "stable", "wait 2; " + second, "before the lease of 6s expired"},
		"restart of another":          {kill, "stable", second, "before the lease"},
		"leader did not change":       {stop, "stable", release + "lock stable-1 stable-1 2", "stable-1 leads again"},
		"wrong revision":              {stop, "canary", release + second, "want a leader of canary"},
		"second change":               {stop, "canary", release + second + "wait 5; lock canary-1 canary-1 3", `was "taken", want "handed over"`},
		"no leader":                   {stop, "stable", release, "no new term began"},
		"leader stopped again":        {flip, "canary", handover + "lock canary-1 - 2", "has been released"},
		"released instead of deleted": {remove, "stable", release + "lock stable-1 stable-1 2", `want "deleted"`},
		"coordinator in the same Pod": {choose, "stable", release + "name stable-2; " + second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := begun(t)
			s.Play("lock stable-1 stable-1 1")
			s.Play(c.act)
			err := c.course.Check(Terms(history(t, s).Courses(), home, bundles), 1, c.revision, Timing{6 * time.Second, time.Second})
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	t.Run("corruption", func(t *testing.T) {
		for seconds, want := range map[int]bool{3: false, 6: true} {
			s := auditlog.New(t)
			configMap := func(who, record string) {
				s.Put(who, "update", "configmaps", home, "legacy", auditlog.Fields{"metadata": auditlog.Fields{"annotations": auditlog.Fields{"control-plane.alpha.kubernetes.io/leader": record}}})
			}
			configMap("stable-1", `{"holderIdentity":"stable-1","holderKey":"stable","leaderTransitions":1}`)
			configMap("admin", "broken")
			s.Clock = s.Clock.Add(time.Duration(seconds-1) * time.Second)
			configMap("stable-2", `{"holderIdentity":"stable-2","holderKey":"stable","leaderTransitions":2}`)
			err := corrupt.Check(Terms(history(t, s).Courses(), home, "legacy"), 1, "stable", Timing{6 * time.Second, time.Second})
			if (err == nil) != want {
				t.Errorf("replaced after %d s: %v", seconds, err)
			}
		}
	})
}
