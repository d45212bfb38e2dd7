package main

import (
	"maps"
	"slices"
	"strconv"
)

// table shows who leads what, by the locks and by the processes' own accounts.
// Renewals do not change it.
func table(v view, spans []span) []string {
	rows := [][]string{{"ELECTION", "LOCK", "HOLDER", "REVISION", "TRANSITIONS", "WORKING"}}
	for _, name := range slices.Sorted(maps.Keys(v.locks)) {
		l := v.locks[name]
		row := []string{name, l.kind, l.holder, l.key, strconv.Itoa(l.transitions), "nobody"}
		switch {
		case l.unreadable:
			row[2], row[3], row[4] = "(unreadable record)", "", ""
		case l.holder == "":
			row[2] = "(free)"
		}
		for i, s := range working(spans, name) {
			text := s.pod + " since " + s.from.Format("15:04:05.000")
			if i == 0 {
				row[5] = text
			} else {
				row[5] += " AND " + text
			}
		}
		rows = append(rows, row)
	}
	lines := columns(rows)

	rows = [][]string{{"POD", "REVISION", "READY", "RESTARTS", "ADDRESS"}}
	for _, name := range slices.Sorted(maps.Keys(v.pods)) {
		p := v.pods[name]
		ready := "no"
		switch {
		case p.leaving:
			ready = "leaving"
		case p.ready:
			ready = "yes"
		}
		revision := p.revision
		if revision == v.defaultRevision {
			revision += " (default)"
		}
		rows = append(rows, []string{name, revision, ready, strconv.Itoa(p.restarts), p.ip})
	}
	return append(append(lines, ""), columns(rows)...)
}
