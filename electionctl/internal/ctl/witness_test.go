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
	for listed, candidates := range map[string][]inspect.Candidate{
		"parent":            candidates("parent", "parent"),
		"parent,sidecar":    candidates("parent", "sidecar"),
		"sidecar,none,none": candidates("sidecar", "none", "none"),
		"-":                 nil,
	} {
		if got := witnesses(candidates); got != listed {
			t.Errorf("listed as %q, want %q", got, listed)
		}
	}
}
