package install

import (
	"errors"
	"fmt"
)

// Verdict is the result of a check.
type Verdict string

const (
	// Holds means that the check passed.
	Holds Verdict = "holds"
	// Fails means that the check failed.
	Fails Verdict = "fails"
	// Undecided means that the check could not be made.
	Undecided Verdict = "unclear"
	// Skipped means that there is nothing to check now, because no candidate leads or the mode rejects nothing.
	Skipped Verdict = "skipped"
)

// Finding is the result of one check.
type Finding struct {
	// Server is the API server that was checked.
	Server string `json:"server"`
	// What has the checked statement.
	What    string  `json:"what"`
	Verdict Verdict `json:"verdict"`
	// Why is the reason of the verdict.
	Why string `json:"why,omitempty"`
	// leader is true if the check is a write of the leader.
	leader bool
}

func (f Finding) String() string {
	verdict := string(f.Verdict)
	if f.Verdict == Fails {
		verdict = "FAILS"
	}
	text := fmt.Sprintf("%-7s  %s", verdict, f.What)
	if f.Why != "" {
		text += ": " + f.Why
	}
	return text
}

// Judging selects the verdicts that Judge accepts. The zero value accepts Holds and Skipped.
type Judging struct {
	// AllowUnclear also accepts checks that could not be made.
	AllowUnclear bool
	// Strict accepts only checks that were made and passed.
	Strict bool
}

// Judge returns an error with the number of findings that are not accepted. The caller prints the findings.
func Judge(findings []Finding, by Judging) error {
	fails, unclear := 0, 0
	for _, f := range findings {
		switch {
		case f.Verdict == Fails:
			fails++
		case f.Verdict == Undecided && (by.Strict || !by.AllowUnclear), f.Verdict == Skipped && by.Strict:
			unclear++
		}
	}
	switch {
	case len(findings) == 0:
		return errors.New("nothing was checked")
	case fails > 0:
		return fmt.Errorf("the fence is not in effect: %d of %d checks failed", fails, len(findings))
	case unclear > 0 && by.Strict:
		return fmt.Errorf("%d of %d checks could not be made (--strict requires all)", unclear, len(findings))
	case unclear > 0:
		return fmt.Errorf("%d of %d checks could not be made (use --allow-unclear to accept this)", unclear, len(findings))
	}
	return nil
}
