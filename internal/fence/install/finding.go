package install

import (
	"errors"
	"fmt"
)

// Verdict is the result for one object or write that was checked.
type Verdict string

// The verdicts.
const (
	// Holds: it is as it should be.
	Holds Verdict = "holds"
	// Fails: it is not.
	Fails Verdict = "fails"
	// Undecided: that could not be found out.
	Undecided Verdict = "unclear"
	// Skipped: there is nothing to find out now, as nobody leads or nothing is to be refused yet.
	Skipped Verdict = "skipped"
)

// Finding is one thing that was looked at.
type Finding struct {
	// Server is the API server that was asked.
	Server string `json:"server"`
	// What was looked at, as a sentence.
	What string `json:"what"`
	// Verdict says how it was.
	Verdict Verdict `json:"verdict"`
	// Why says what was seen, in words.
	Why string `json:"why,omitempty"`
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

// Judging says what is accepted of findings. The zero value takes what holds, and what
// is skipped.
type Judging struct {
	// AllowUnclear accepts what could not be found out.
	AllowUnclear bool
	// Strict accepts nothing but what holds.
	Strict bool
}

// Judge is nil if the findings are accepted.
func Judge(findings []Finding, by Judging) error {
	var fails, unclear []error
	for _, f := range findings {
		switch err := fmt.Errorf("%s: %s", f.What, f.Why); {
		case f.Verdict == Fails:
			fails = append(fails, err)
		case f.Verdict == Undecided && (by.Strict || !by.AllowUnclear), f.Verdict == Skipped && by.Strict:
			unclear = append(unclear, err)
		}
	}
	switch {
	case len(findings) == 0:
		return errors.New("nothing was looked at")
	case len(fails) > 0:
		return fmt.Errorf("the fence does not stand: %w", errors.Join(fails...))
	case len(unclear) > 0 && by.Strict:
		return fmt.Errorf("whether the fence stands is not shown in full (--strict): %w", errors.Join(unclear...))
	case len(unclear) > 0:
		return fmt.Errorf("whether the fence stands is unclear (--allow-unclear accepts that): %w", errors.Join(unclear...))
	}
	return nil
}
