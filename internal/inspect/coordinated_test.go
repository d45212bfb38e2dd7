package inspect

import (
	"strings"
	"testing"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

func TestChanges_Coordinated(t *testing.T) {
	of := func(holder string, transitions int, notes ...string) *Election {
		l := lease(t, "e", holder, append(notes, "incumbent.dev/strategy", "x")...)
		l.Snapshot.Record.LeaderTransitions = transitions
		e := Of(l)
		return &e
	}
	nominated := Of(configMap(t, "e", strings.Replace(recordOf("b", "stable", 3), "03:05:05", "03:04:05", 1), "incumbent.dev/nominated", "b"))
	free := Of(configMap(t, "e", recordOf("", "", 3)))
	for name, c := range map[string]struct {
		before, after *Election
		want          string
	}{
		"named":               {of("", 3), of("a.e", 3), "coordinator named a (stable)"},
		"handed over":         {of("a.e", 3, markerKey, "v1 a.e 3 handover"), of("b.e", 4), "b (stable) was nominated by a"},
		"acquired by itself":  {of("", 3), of("a.e", 3, markerKey, "v1 a.e 3 handover"), "a (stable) acquired the lock and leads"},
		"not coordinated":     {&free, &nominated, "b (stable) was nominated by an unknown process"},
		"no longer preferred": {of("a.e", 3, "incumbent.dev/preferred-holder", "b.e"), of("a.e", 3), ""},
	} {
		if got := strings.Join(Changes(c.before, c.after), "; "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestIf_Coordinated(t *testing.T) {
	canary := k8sleaderelection.DefaultRevision{Synced: true, Revision: "canary"}
	fit := func(identity, key string) Candidate {
		return Candidate{Identity: identity, Key: key, Fit: true, Warm: true}
	}
	leads := func(key string, candidates ...Candidate) Election {
		return Election{
			Name: "e", Strategy: defaultRevision, State: Leads, HandsOver: true, Holder: "a", Key: key,
			Revision: strings.TrimPrefix(key, "^"), Remote: strings.HasPrefix(key, "^"), Ranked: true, Candidates: candidates,
		}
	}
	for name, c := range map[string]struct {
		e    Election
		want Outcome
	}{
		"of the default revision": {leads("canary", fit("b", "canary")), Outcome{Move: Stays, Leader: "a", Warm: true, Why: "no revision is preferred"}},
		"remote":                  {leads("^canary", fit("b", "canary")), Outcome{Move: HandOver, Leader: "b", Warm: true}},
		"the only one":            {leads("stable", fit("b", "canary"), fit("c", "stable")), Outcome{Move: HandOver, Leader: "b", Warm: true}},
		"not warm":                {leads("stable", Candidate{Identity: "b", Key: "canary", Fit: true}), Outcome{Move: HandOver, Leader: "b"}},
		"two equal":               {leads("stable", fit("b", "canary"), fit("c", "canary")), Outcome{Move: HandOver, Warm: true}},
		"two, one unfit":          {leads("stable", fit("b", "canary"), Candidate{Identity: "c", Key: "canary"}), Outcome{Move: HandOver, Leader: "b", Warm: true}},
		// The key of its member differs from the record.
		"itself": {leads("stable", fit("a", "canary")), Outcome{Move: Stays, Leader: "a", Warm: true}},
	} {
		if got := c.e.If(canary, true); got.Move != c.want.Move || got.Leader != c.want.Leader || got.Warm != c.want.Warm || !strings.Contains(got.Why, c.want.Why) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	free := Election{Name: "e", Strategy: defaultRevision, State: Free, Candidates: []Candidate{{Identity: "u", Key: "canary"}, {Identity: "v", Key: "canary", Late: true}}}
	if got := free.If(canary, true); got.Leader != "u" {
		t.Errorf("unfit or late candidates: %+v", got)
	}
	none := Election{Name: "e", Strategy: defaultRevision, State: Leads, HandsOver: true, Holder: "a", Key: "stable", Revision: "stable"}
	if got := none.If(canary, false); got.Move != Unknown || got.Revision != "canary" || got.Leader != "" {
		t.Errorf("unknown candidates: %+v", got)
	}
}
