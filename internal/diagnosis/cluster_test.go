package diagnosis

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/inspect"
)

func TestClock_SlowRequest(t *testing.T) {
	for name, c := range map[string]struct {
		clock Clock
		want  Severity
	}{
		"equal":           {Clock{0, 0}, Well},
		"behind":          {Clock{-maxClockSkew - time.Second, 0}, Warning},
		"slow request":    {Clock{maxClockSkew + time.Second, 2 * time.Second}, Well},
		"larger than it":  {Clock{maxClockSkew + 3*time.Second, 2 * time.Second}, Warning},
		"behind and slow": {Clock{-maxClockSkew - time.Second, 2 * time.Second}, Well},
	} {
		if got := (&Input{Clock: &c.clock}).clocks(); len(got) != 1 || got[0].Severity != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestWitnesses(t *testing.T) {
	candidates := func(kinds ...string) (all []inspect.Candidate) {
		for i, kind := range kinds {
			all = append(all, inspect.Candidate{Namespace: "ns", Election: "e", Identity: string(rune('a' + i)), Witness: kind})
		}
		return all
	}
	late := append(candidates("none"), inspect.Candidate{Identity: "z", Witness: "parent", Late: true}, inspect.Candidate{Identity: "y", Witness: "parent", Down: "gone"})
	const none = "no candidate has a witness; after a crash of the leader's process, followers wait for its lease"
	for name, c := range map[string]struct {
		candidates []inspect.Candidate
		severity   Severity
		cause      string
	}{
		"all":         {candidates("parent", "parent"), Well, "each candidate has a witness"},
		"kinds":       {candidates("parent", "sidecar"), Well, "each candidate has a witness"},
		"some":        {candidates("sidecar", "none", "none"), Well, "ns/e has candidates without a witness: b, c"},
		"many":        {candidates("sidecar", "none", "none", "none", "none", "none"), Well, "ns/e has candidates without a witness: b, c, d and 2 others"},
		"none":        {candidates("none", "none"), Warning, none},
		"late, ended": {late, Warning, none},
		"unknown":     {nil, Unknown, "the witnesses are unknown, because no live candidate has a member Lease"},
	} {
		got := (&Input{Candidates: c.candidates}).witnesses()
		if len(got) != 1 || got[0].Severity != c.severity || got[0].String() != c.cause || (got[0].Advice != "") != (c.severity == Warning) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestWitnesses_OtherRevision checks that the finding about candidates of one revision is also about the elections that they share.
func TestWitnesses_OtherRevision(t *testing.T) {
	p := newPlane()
	p.candidates("pilot-stable", func(c *inspect.Candidate) { c.Witness = inspect.NoWitness })
	of := Of(p.Elections[0], Findings(p.Input))
	if len(of) != 1 || of[0].String() != "istio-system/istio-leader has candidates without a witness: pilot-stable-1, pilot-stable-2" {
		t.Errorf("%+v", of)
	}
}

// TestLeaders_NoLockYet checks that candidates that warm up, and so have not created their lock, need no action.
func TestLeaders_NoLockYet(t *testing.T) {
	p := newPlane()
	p.Elections = nil
	p.Now = time.Now()
	for started, command := range map[time.Duration]string{maxWarmUp / 2: "", 2 * maxWarmUp: "kubectl -n istio-system logs pilot-canary-1"} {
		for i := range p.Pods[home] {
			p.Pods[home][i].Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(p.Now.Add(-started))
		}
		p.candidates("pilot-", func(c *inspect.Candidate) { c.Warm = false })
		if found := p.leaders(); len(found) != 2 || found[0].Command != command || (found[0].Advice == warmUp) != (command == "") {
			t.Errorf("started %v ago: %+v", started, found)
		}
	}
}
