package diagnosis

import (
	"testing"
	"time"

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
			all = append(all, inspect.Candidate{Identity: string(rune('a' + i)), Witness: kind})
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
		"some":        {candidates("sidecar", "none", "none"), Well, "candidates without a witness: b, c"},
		"many":        {candidates("sidecar", "none", "none", "none", "none", "none"), Well, "candidates without a witness: b, c, d and 2 others"},
		"none":        {candidates("none", "none"), Warning, none},
		"late, ended": {late, Warning, none},
		"unknown":     {nil, Unknown, "the witnesses are unknown, because no live candidate has a member Lease"},
	} {
		got := (&Input{Candidates: c.candidates}).witnesses()
		if len(got) != 1 || got[0].Severity != c.severity || got[0].Cause != c.cause || (got[0].Advice != "") != (c.severity == Warning) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
