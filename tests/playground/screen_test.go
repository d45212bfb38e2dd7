package main

import (
	"strings"
	"testing"
)

func TestScreenWithoutTerminalPrintsTheTableAgain(t *testing.T) {
	var out strings.Builder
	s := &screen{out: &out}
	s.show(noon, []string{"ELECTION", "a"})
	s.say(noon, "%s leads", "b")
	s.show(noon, []string{"ELECTION", "b"})
	want := "\n12:00:00.000\nELECTION\na\n\n12:00:00.000  b leads\n\n12:00:00.000\nELECTION\nb\n\n"
	if out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

func TestScreenOnTerminalKeepsTheTableBelow(t *testing.T) {
	var out strings.Builder
	s := &screen{out: &out, width: 10}
	s.show(noon, []string{"0123456789abc"})
	s.say(noon, "news")
	want := "\n012345678\n" + "\x1b[2A\x1b[J" + "12:00:00.000  news\n" + "\n012345678\n"
	if out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
	out.Reset()
	s.leave()
	s.print("bye\n")
	if out.String() != "bye\n" {
		t.Errorf("after leave printed %q", out.String())
	}
}

func TestColumns(t *testing.T) {
	got := columns([][]string{{"A", "LONG", "Z"}, {"äöü", "", "z"}})
	want := []string{"A    LONG  Z", "äöü        z"}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("columns %q, want %q", got, want)
	}
}
