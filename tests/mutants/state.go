package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// state is what is known of a room, kept between runs.
type state struct {
	// Sum is the build that the results are of.
	Sum string `json:"sum"`
	// Mutants is how many the room has, Results what became of those that were tried.
	Mutants int               `json:"mutants"`
	Results map[string]result `json:"results"`
	// Earlier is what survived an earlier build and was not tried on this one yet: a test that fails
	// without a mutant, or a budget that is spent, does not make it forgotten.
	Earlier map[string]result `json:"earlier,omitempty"`
	// Tests is what was seen of the build's tests without a mutant.
	Tests map[string]seen `json:"tests,omitempty"`
}

// seen is what is kept of a test.
type seen struct {
	Took    time.Duration `json:"took"`
	Reached []int         `json:"reached"`
}

func stateFile(work, room string) string { return filepath.Join(work, room, "state.json") }

func readState(work, room string) (state, error) {
	s := state{Results: map[string]result{}, Tests: map[string]seen{}}
	text, err := os.ReadFile(stateFile(work, room))
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("reading what is known of %s (remove it to begin anew): %w", room, err)
	}
	return s, nil
}

func (s state) write(work, room string) error {
	text, err := json.MarshalIndent(s, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(stateFile(work, room), text, 0o644)
}

// all are the results of this build, and those of the earlier one where there is none yet.
func (s state) all() map[string]result {
	all := maps.Clone(s.Earlier)
	if all == nil {
		all = map[string]result{}
	}
	maps.Copy(all, s.Results)
	return all
}

// excuses are the mutants that change nothing that can be observed, with reasons.
type excuses map[string]string

// readExcuses reads a file of keys, each followed by its reason on lines that are
// indented.
func readExcuses(path string) (excuses, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	all := excuses{}
	key := ""
	for i, line := range strings.Split(string(text), "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "" || strings.HasPrefix(line, "#"):
		case line[0] != ' ' && line[0] != '\t':
			if key != "" && all[key] == "" {
				return nil, fmt.Errorf("%s:%d: %q has no reason", path, i, key)
			}
			if _, twice := all[trimmed]; twice {
				return nil, fmt.Errorf("%s:%d: %q stands there twice", path, i+1, trimmed)
			}
			key = trimmed
			all[key] = ""
		case key == "":
			return nil, fmt.Errorf("%s:%d: a reason without a mutant", path, i+1)
		default:
			all[key] = strings.TrimSpace(all[key] + " " + trimmed)
		}
	}
	if key != "" && all[key] == "" {
		return nil, fmt.Errorf("%s: %q has no reason", path, key)
	}
	return all, nil
}
