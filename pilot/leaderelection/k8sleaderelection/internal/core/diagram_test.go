package core

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// before is the reason of every state that the enumeration visits, and of what is entered for
// the same reason as what came before.
const before Reason = "as before"

// losses are the reasons for which a record is no longer that of its term.
var losses = []Reason{HistoryRewound, HalfLost, IdentityConflict, LockDeleted, RecordEmptied, RecordUnreadable, Superseded}

// transition is a change of phase, or of the reason why it was entered.
type transition struct{ from, to Phase }

// transitions are the reasons of each.
type transitions map[transition]map[Reason]bool

// follow settles s, one change after the other.
func (found transitions) follow(c Config, s State) State {
	for {
		next := c.advanceOnce(s, testNow)
		if next == s {
			return s
		}
		switch {
		case next.Why != s.Why:
			found.note(transition{s.Phase, next.Phase}, next.Why)
		case next.Phase != s.Phase:
			found.note(transition{s.Phase, next.Phase}, before)
		}
		s = next
	}
}

func (found transitions) note(at transition, why Reason) {
	if found[at] == nil {
		found[at] = map[Reason]bool{}
	}
	found[at][why] = true
}

func (found transitions) add(more transitions) {
	for at, reasons := range more {
		for why := range reasons {
			found.note(at, why)
		}
	}
}

// drawing is a state diagram as mermaid draws it, one line for each transition.
func (found transitions) drawing() string {
	lines := []string{}
	for at, reasons := range found {
		lines = append(lines, fmt.Sprintf("%d%d    %s --> %s: %s\n", at.from, at.to, at.from, at.to, words(reasons)))
	}
	slices.Sort(lines)
	var out strings.Builder
	out.WriteString(diagramBegin + "    [*] --> following\n")
	for _, line := range lines {
		out.WriteString(line[2:]) // without the numbers, by which they are in order
	}
	out.WriteString("    done --> [*]\n    note right of draining\n        loss is any of<br/>" +
		strings.ReplaceAll(words(map[Reason]bool{}, losses...), ", ", ",<br/>") + "\n    end note\n")
	return out.String()
}

// words are reasons in order, with all losses as one.
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

// diagramPage is the page of the documentation that draws the transitions.
const diagramPage = "../../../../../docs/phases.md"

const diagramBegin, diagramEnd = "stateDiagram-v2\n", "```\n"

// drawnAnew is a page with its state diagram as was found, and how the one that is there differs.
func (found transitions) drawnAnew(page string) (anew, difference string) {
	before, rest, begins := strings.Cut(page, diagramBegin)
	drawn, after, ends := strings.Cut(rest, diagramEnd)
	if !begins || !ends {
		return page, "it draws no state diagram"
	}
	drawn = diagramBegin + drawn
	want := found.drawing()
	if drawn != want {
		difference = firstDifference(drawn, want)
	}
	return before + want + diagramEnd + after, difference
}

// compare fails when the documentation draws other transitions than were found.
func (found transitions) compare(t *testing.T) {
	t.Helper()
	page, err := os.ReadFile(diagramPage)
	if err != nil {
		t.Fatal(err)
	}
	anew, difference := found.drawnAnew(string(page))
	switch {
	case difference == "":
	case *rewrite:
		if err := os.WriteFile(diagramPage, []byte(anew), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s draws other transitions than there are (go test -run TestDecideEnumerated -rewrite draws them anew):\n%s", diagramPage, difference)
	}
}

// A transition that the page misses is found, and so are one too many and another reason.
func TestAWrongDiagramIsFound(t *testing.T) {
	of := func(all ...transition) transitions {
		found := transitions{}
		for _, at := range all {
			found.note(at, Stopped)
		}
		return found
	}
	lead, end, more := transition{Following, Leading}, transition{Leading, Draining}, transition{Draining, Done}
	page := "# Phases\n\n```mermaid\n" + of(lead, end).drawing() + "```\n\nText.\n"
	if anew, difference := of(end, lead).drawnAnew(page); anew != page || difference != "" {
		t.Errorf("a page that is right differs: %s\n%s", difference, anew)
	}
	reason := of(lead, end)
	reason.note(end, SteppedDown)
	for name, found := range map[string]transitions{
		"one is missing": of(lead, end, more), "one too many": of(lead), "another reason": reason,
	} {
		anew, difference := found.drawnAnew(page)
		if difference == "" {
			t.Errorf("%s: no difference", name)
		}
		if _, difference = found.drawnAnew(anew); difference != "" {
			t.Errorf("%s: drawn anew it still differs: %s", name, difference)
		}
	}
	if _, difference := of(lead).drawnAnew("# Phases\n"); difference == "" {
		t.Error("a page without a diagram draws the transitions")
	}
}
