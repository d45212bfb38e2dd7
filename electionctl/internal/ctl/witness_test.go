package ctl

import (
	"testing"

	"incumbent.dev/incumbent/internal/inspect"
)

func TestWitnesses(t *testing.T) {
	candidates := func(kinds ...string) (all []inspect.Candidate) {
		for i, kind := range kinds {
			all = append(all, inspect.Candidate{Identity: string(rune('a' + i)), Witness: kind})
		}
		return all
	}
	late := append(candidates("none"), inspect.Candidate{Identity: "z", Witness: "parent", Late: true})
	for name, c := range map[string]struct {
		candidates []inspect.Candidate
		listed     string
		doctor     verdict
		message    string
	}{
		"all":     {candidates("parent", "parent"), "parent", well, "each candidate has a witness"},
		"kinds":   {candidates("parent", "sidecar"), "parent,sidecar", well, "each candidate has a witness"},
		"some":    {candidates("sidecar", "none", "none"), "sidecar,none,none", well, "candidates without a witness: b, c"},
		"none":    {candidates("none", "none"), "none", warning, "no candidate has a witness; after a crash of the leader's process, followers wait for its lease"},
		"late":    {late, "none,parent", warning, "no candidate has a witness; after a crash of the leader's process, followers wait for its lease"},
		"unknown": {nil, "-", "", ""},
	} {
		x := &examination{seen: &seen{candidates: c.candidates}}
		err := witnessed(t.Context(), x)
		got := append(x.found, finding{})[0]
		if err != nil || got.Verdict != c.doctor || got.Message != c.message || (got.Fix != "") != (got.Verdict == warning) {
			t.Errorf("%s: doctor reports %+v, %v", name, x.found, err)
		}
		if listed := witnesses(c.candidates); listed != c.listed {
			t.Errorf("%s: listed as %q, want %q", name, listed, c.listed)
		}
	}
}
