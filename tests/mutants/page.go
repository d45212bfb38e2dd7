package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// pageHead begins the page of results.
const pageHead = `# Mutants

Small faults, mutants, were planted in the code, one at a time: a condition always true, a bound moved, an
assignment left out. One is killed when a test fails with it, equivalent when it changes nothing that can
be observed, with the reason below; one that survives is a test that is missing. Where some were not tried,
the room was sampled or its time was over.

Judged by: *all* its judges in tests/mutants/rooms.go; its *own* packages' tests alone; or the *unit* tests,
without an API server. A row is of the code as it was when the room was tried: what changed since was not.
` + "`make mutants ROOM=… ARGS=-page=docs/mutants.md`" + ` tries a room and writes its part of this page
([how](../CONTRIBUTING.md#mutants)).

| room | mutants | killed | of these by time-out | equivalent | survived | not tried | judged by |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |
`

// part is what a page says of one room.
type part struct {
	row string
	// lists are the sections of what is equivalent and of what survived.
	lists string
}

const listMark = "\n## "

// readPage takes a page apart, by rooms; where there is none, there are none.
func readPage(path string) (map[string]part, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	page := map[string]part{}
	head, lists, _ := strings.Cut(string(text), listMark)
	for line := range strings.Lines(head) {
		if cells := strings.Split(line, "|"); len(cells) == 10 {
			page[strings.TrimSpace(cells[1])] = part{row: line}
		}
	}
	for _, list := range strings.Split(lists, listMark) {
		title, _, _ := strings.Cut(list, "\n")
		name := title[strings.LastIndex(title, " ")+1:]
		p := page[name]
		p.lists += listMark + strings.TrimRight(list, "\n") + "\n"
		page[name] = p
	}
	return page, nil
}

// writePage writes what is known of the run's rooms. Of others, what the page said stays.
func (o options) writePage(excused excuses) error {
	page, err := readPage(o.page)
	if err != nil {
		return err
	}
	rows, lists := pageHead, ""
	for _, r := range o.table {
		known, err := readState(o.work, r.name)
		if err != nil {
			return err
		}
		p := page[r.name]
		if known.Mutants > 0 && slices.Contains(roomNames(o.rooms), r.name) {
			p = r.part(known, excused)
		}
		rows += p.row
		lists += p.lists
	}
	return os.WriteFile(o.page, []byte(rows+lists), 0o644)
}

// part is what a page says of a room of which that is known.
func (r room) part(known state, excused excuses) part {
	var killed, slow int
	var equivalent, survived []string
	results := known.all()
	for _, key := range slices.Sorted(maps.Keys(results)) {
		result := results[key]
		reason, known := excused[key]
		switch {
		case result.killed():
			killed++
			if result.Outcome == outcomeTimeout {
				slow++
			}
		case known:
			equivalent = append(equivalent, fmt.Sprintf("- `%s`: %s\n", quoted(key), reason))
		default:
			survived = append(survived, fmt.Sprintf("- `%s`\n", quoted(key)))
		}
	}
	return part{
		row: fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %d | %s |\n", r.name, known.Mutants, killed, slow,
			len(equivalent), len(survived), known.Mutants-len(results), r.judgedBy(known)),
		lists: section("Equivalent in "+r.name, equivalent) + section("Survived in "+r.name, survived),
	}
}

// judgedBy says which of the room's tests have judged each of its mutants.
func (r room) judgedBy(known state) string {
	all, least := r.passes(), r.passes()
	for _, result := range known.all() {
		if !result.killed() {
			least = min(least, result.Passes)
		}
	}
	others := slices.ContainsFunc(r.judges, func(j judge) bool { return !r.has(j) || j.second })
	switch {
	case least == all || !others:
		return "all"
	case least == 0:
		return "own"
	}
	return "unit"
}

func section(title string, lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return listMark + title + "\n\n" + strings.Join(lines, "")
}

func quoted(key string) string { return strings.ReplaceAll(key, "`", "'") }
