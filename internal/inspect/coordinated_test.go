package inspect

import (
	"strings"
	"testing"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

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
		if got := c.e.If(canary); got.Move != c.want.Move || got.Leader != c.want.Leader || got.Warm != c.want.Warm || !strings.Contains(got.Why, c.want.Why) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	free := Election{Name: "e", Strategy: defaultRevision, State: Free, Candidates: []Candidate{{Identity: "u", Key: "canary"}, {Identity: "v", Key: "canary", Late: true}}}
	if got := free.If(canary); got.Leader != "u" {
		t.Errorf("unfit or late candidates: %+v", got)
	}
	none := Election{Name: "e", Strategy: defaultRevision, State: Leads, HandsOver: true, Holder: "a", Key: "stable", Revision: "stable"}
	if got := none.If(canary); got.Move != Unknown || got.Revision != "canary" || got.Leader != "" {
		t.Errorf("unknown candidates: %+v", got)
	}
}

// Without LeaseCandidates the election is ranked, whether or not an old strategy remains on the lock. The identities in the lock are
// still names of LeaseCandidates.
func TestElections_Uncoordinated(t *testing.T) {
	const why = "the API server does not serve LeaseCandidates"
	of := func(identity, revision string) Candidate {
		return Candidate{Namespace: "istio-system", Election: "e", Identity: identity, Key: revision, Warm: true, Fit: true, Strategy: defaultRevision, Uncoordinated: why}
	}
	candidates := []Candidate{of("a", "stable"), of("b", "canary")}
	for name, annotations := range map[string][]string{"no strategy": nil, "old strategy": {"incumbent.dev/strategy", defaultRevision}} {
		l := lease(t, "e", "a.e", append(annotations, "incumbent.dev/leader", "v1 a.e 3 handover")...)
		d := k8sleaderelection.DefaultRevision{Synced: true, Revision: "canary"}
		e := Elections([]Lock{l}, candidates, nil, d)[0]
		if e.Coordinated() || e.Uncoordinated != why || e.Holder != "a" || e.Identity("b") != "b.e" || !e.Known() {
			t.Errorf("%s: %+v", name, e)
		}
		if o := e.If(d); o.Move != HandOver || o.Leader != "b" {
			t.Errorf("%s: %+v", name, o)
		}
	}
	alone := Elections([]Lock{lease(t, "e", "a.e", "incumbent.dev/strategy", defaultRevision, "incumbent.dev/leader", "v1 a.e 3 handover uncoordinated")}, nil, nil, k8sleaderelection.DefaultRevision{})[0]
	if alone.Coordinated() || alone.Uncoordinated != leaderelection.NoCoordinator || alone.Holder != "a" {
		t.Errorf("the marker: %+v", alone)
	}
	candidates[0].Uncoordinated = ""
	candidates[1].Late = true
	if e := Elections([]Lock{lease(t, "e", "a.e", "incumbent.dev/strategy", defaultRevision)}, candidates, nil, k8sleaderelection.DefaultRevision{})[0]; !e.Coordinated() {
		t.Errorf("a late member decides: %+v", e)
	}
}

// A nomination is no write of its candidate, so it begins no term.
func TestOf_NominatedSince(t *testing.T) {
	nominated := strings.Replace(recordOf("b", "", 4), "03:05:05", "03:04:05", 1)
	if e := Of(configMap(t, "e", nominated, "incumbent.dev/nominated", "b")); e.State != Nominated || !e.Since.IsZero() {
		t.Errorf("%s since %v", e.State, e.Since)
	}
	if e := Of(configMap(t, "e", recordOf("b", "", 4))); e.Since.IsZero() {
		t.Errorf("%+v", e)
	}
}
