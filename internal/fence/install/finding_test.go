package install

import (
	"slices"
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		verdict                 Verdict
		plain, unclear, stricts bool
	}{
		{Holds, true, true, true},
		{Skipped, true, true, false},
		{Undecided, false, true, false},
		{Fails, false, false, false},
	} {
		findings := []Finding{{Verdict: Holds}, {Verdict: c.verdict, What: "w", Why: "y"}}
		for _, by := range []struct {
			judging Judging
			want    bool
		}{{Judging{}, c.plain}, {Judging{AllowUnclear: true}, c.unclear}, {Judging{Strict: true}, c.stricts}, {Judging{Strict: true, AllowUnclear: true}, c.stricts}} {
			if got := Judge(findings, by.judging) == nil; got != by.want {
				t.Errorf("%s, by %+v: accepted is %v", c.verdict, by.judging, got)
			}
		}
	}
	// An administrator has to know which flag refused it.
	unclear := []Finding{{Verdict: Undecided, What: "w", Why: "y"}}
	for want, by := range map[string]Judging{"1 of 1 checks could not be made (--strict requires all)": {Strict: true}, "1 of 1 checks could not be made (use --allow-unclear to accept this)": {}} {
		if err := Judge(unclear, by); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("by %+v: %v, without %q", by, err, want)
		}
	}
	fails := slices.Repeat([]Finding{{Verdict: Fails, What: "w", Why: "y"}}, 5)
	const want = "the fence is not in effect: 5 of 6 checks failed" // the list of findings names them
	if err := Judge(append(fails, Finding{Verdict: Holds}), Judging{}); err == nil || err.Error() != want {
		t.Errorf("five failures: %v, want %s", err, want)
	}
	if Judge(nil, Judging{AllowUnclear: true}) == nil {
		t.Error("no findings were accepted")
	}
}
