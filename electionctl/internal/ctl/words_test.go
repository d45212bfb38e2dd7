package ctl

import (
	"fmt"
	"strings"
	"testing"

	"incumbent.dev/incumbent/internal/inspect"
)

// A row is as wide as the widest one, so 10,000 candidates of one election would make 500 rows 70 MB.
func TestCandidateNames_Many(t *testing.T) {
	var e inspect.Election
	for i := range 10000 {
		e.Candidates = append(e.Candidates, inspect.Candidate{Identity: fmt.Sprint("p", i), Witness: fmt.Sprint("w", i%2)})
	}
	for _, got := range []string{candidateNames(e), witnesses(e.Candidates)} {
		if words := strings.Split(got, ","); len(words) != maxWords+1 || words[maxWords] != "and 9990 more" {
			t.Errorf("got %q", got)
		}
	}
	e.Candidates = e.Candidates[:maxWords]
	if got := candidateNames(e); got != "p0,p1,p2,p3,p4,p5,p6,p7,p8,p9" {
		t.Errorf("got %q", got)
	}
}
