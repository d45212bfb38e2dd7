package core

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// before is the reason of every state that the enumeration visits. A state that was entered for
// the same reason as the one before it has this reason too.
const before Reason = "as before"

// losses are the reasons for which a record no longer belongs to its term.
var losses = []Reason{HistoryRewound, IdentityConflict, LockDeleted, RecordEmptied, RecordUnreadable, Superseded}

type transition struct{ from, to Phase }

// transitions are the reasons of each transition.
type transitions map[transition]map[Reason]bool

// follow settles s and records each transition.
func (found transitions) follow(c Config, s State) State {
	for {
		next := c.advanceOnce(s, testNow)
		if next == s {
			return s
		}
		switch {
		case next.Why != s.Why:
			found.record(transition{s.Phase, next.Phase}, next.Why)
		case next.Phase != s.Phase:
			found.record(transition{s.Phase, next.Phase}, before)
		}
		s = next
	}
}

func (found transitions) record(at transition, why Reason) {
	if found[at] == nil {
		found[at] = map[Reason]bool{}
	}
	found[at][why] = true
}

func (found transitions) add(more transitions) {
	for at, reasons := range more {
		for why := range reasons {
			found.record(at, why)
		}
	}
}

// diagram returns a mermaid state diagram with one line for each transition.
func (found transitions) diagram() string {
	lines := []string{}
	for at, reasons := range found {
		lines = append(lines, fmt.Sprintf("%d%d    %s --> %s: %s\n", at.from, at.to, at.from, at.to, words(reasons)))
	}
	slices.Sort(lines)
	var out strings.Builder
	out.WriteString(diagramBegin + "    [*] --> following\n")
	for _, line := range lines {
		out.WriteString(line[2:]) // the numbers are for sorting only
	}
	out.WriteString("    done --> [*]\n    note right of draining\n        loss is any of<br/>" +
		strings.ReplaceAll(words(map[Reason]bool{}, losses...), ", ", ",<br/>") + "\n    end note\n")
	return out.String()
}

// words lists reasons in order. All losses together are one word.
func words(reasons map[Reason]bool, more ...Reason) string {
	list := []string{}
	lost := !slices.ContainsFunc(losses, func(why Reason) bool { return !reasons[why] })
	if lost {
		list = append(list, "loss")
	}
	for why := range reasons {
		if !lost || !slices.Contains(losses, why) {
			list = append(list, string(why))
		}
	}
	for _, why := range more {
		list = append(list, string(why))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

const diagramBegin, diagramEnd = "stateDiagram-v2\n", "```\n"

// compare fails if the diagram in the documentation shows other transitions. With -rewrite, it
// replaces the diagram.
func (found transitions) compare(t *testing.T) {
	t.Helper()
	pages, err := filepath.Glob("../../../../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range pages {
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		start, rest, begins := strings.Cut(string(page), diagramBegin)
		old, end, ends := strings.Cut(rest, diagramEnd)
		if !begins || !ends {
			continue
		}
		want := found.diagram()
		switch {
		case diagramBegin+old == want:
		case *rewrite:
			if err := os.WriteFile(path, []byte(start+want+diagramEnd+end), 0o644); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("%s is out of date (update it with: go test -run TestDecideEnumerated -rewrite):\n%s", path, firstDifference(diagramBegin+old, want))
		}
		return
	}
	t.Error("no page in docs has the state diagram")
}
