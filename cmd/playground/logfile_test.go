package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestLogFileGrows(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	l := &logFile{name: name}
	read := func() []string {
		var lines []string
		if err := l.grown(func(line []byte) { lines = append(lines, string(line)) }); err != nil {
			t.Fatal(err)
		}
		return lines
	}
	expect := func(want ...string) {
		t.Helper()
		if got := read(); !slices.Equal(got, want) {
			t.Errorf("read %q, want %q", got, want)
		}
	}
	expect()
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	write("one\ntw")
	expect("one")
	write("o\n\nthree\n")
	expect("two", "", "three")
	expect()
	if err := errors.Join(file.Close(), l.close()); err != nil {
		t.Error(err)
	}
}
