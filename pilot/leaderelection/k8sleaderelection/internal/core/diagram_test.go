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
		lines = append(lines, fmt.Sprintf("%d%d//\t    %s --> %s: %s\n", at.from, at.to, at.from, at.to, words(reasons)))
	}
	slices.Sort(lines)
	var out strings.Builder
	out.WriteString("//\tstateDiagram-v2\n//\t    %% loss: " + words(map[Reason]bool{}, losses...) + "\n//\t    [*] --> following\n")
	for _, line := range lines {
		out.WriteString(line[2:])
	}
	out.WriteString("//\t    done --> [*]\n")
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

// compare fails when the package's documentation draws other transitions than were found.
func (found transitions) compare(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	begin := strings.Index(string(text), "//\tstateDiagram-v2\n")
	if begin < 0 {
		t.Fatal("doc.go draws no state diagram")
	}
	const last = "//\t    done --> [*]\n"
	length := strings.Index(string(text[begin:]), last) + len(last)
	drawn, want := string(text[begin:begin+length]), found.drawing()
	switch {
	case drawn == want:
	case *rewrite:
		if err := os.WriteFile("doc.go", slices.Concat(text[:begin], []byte(want), text[begin+length:]), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("doc.go draws other transitions than there are (go test -run TestDecideEnumerated -rewrite draws them anew):\n%s", firstDifference(drawn, want))
	}
}
