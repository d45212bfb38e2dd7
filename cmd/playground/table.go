package main

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"incumbent.dev/incumbent/pilot/debug"
)

// table shows who leads what, by the locks and by the processes' own accounts, in lines for a
// terminal of that width, 0 for any. Renewals do not change it. Of elections that are not ours it
// knows the lock only. What an API server that does not answer said last is marked so.
func table(v view, spans []span, ours []string, width int) []string {
	var lines []string
	if !v.awaySince.IsZero() {
		lines = append(lines, fmt.Sprintf("The API server has not been ready since %s. Holders and pods are", v.awaySince.Format(stampLayout)),
			"what it said before; who works is known from the processes.", "")
	}
	rows := electionRows(v, spans, ours)
	if short := brief(rows); !fits(rows, width) && fits(short, width) {
		rows = short
	}
	lines = append(append(lines, fitted(rows, width)...), "")
	lines = append(lines, fitted(podRows(v), width)...)
	if sample := sampleRows(v.sampled); sample != nil {
		lines = append(append(lines, ""), fitted(sample, width)...)
	}
	return lines
}

// brief leaves out what the holder's name says, too, and how often the lock has changed hands: with a line for each
// election a table of several still fits a small terminal.
func brief(rows [][]string) (short [][]string) {
	for _, row := range rows {
		short = append(short, []string{row[0], row[1], strings.TrimPrefix(row[4], "since ")})
	}
	short[0][2] = "WORKS SINCE"
	return short
}

func electionRows(v view, spans []span, ours []string) [][]string {
	rows := [][]string{{"ELECTION", "HOLDER", "REVISION", "TRANSITIONS", "WORKING"}}
	for _, name := range slices.Sorted(maps.Keys(v.locks)) {
		l := v.locks[name]
		row := []string{name, l.holder, l.key, strconv.Itoa(l.transitions), whoWorks(l.holder, working(spans, name))}
		if !slices.Contains(ours, name) {
			row[4] = ""
		}
		switch {
		case l.unreadable:
			row[1], row[2], row[3] = "(unreadable record)", "", ""
		case l.holder == "":
			row[1] = "(free)"
		}
		rows = append(rows, row)
	}
	return rows
}

func podRows(v view) [][]string {
	title := "POD (no default revision)"
	if v.defaultRevision != "" {
		title = fmt.Sprintf("POD (default revision: %s)", v.defaultRevision)
	}
	rows := [][]string{{title, "REVISION", "READY", "RESTARTS", "ADDRESS"}}
	for _, name := range slices.Sorted(maps.Keys(v.pods)) {
		p := v.pods[name]
		ready := "no"
		switch {
		case !v.awaySince.IsZero():
			ready = "unknown"
		case p.leaving:
			ready = "leaving"
		case p.ready:
			ready = "yes"
		}
		rows = append(rows, []string{name, p.revision, ready, strconv.Itoa(p.restarts), address(p)})
	}
	return rows
}

// address is where a replica answers; "" while it has none.
func address(p pod) string {
	if p.ip == "" {
		return ""
	}
	return net.JoinHostPort(p.ip, strconv.Itoa(port))
}

// pageAddress is where people look at a replica's elections.
func pageAddress(p pod) string {
	return "http://" + net.JoinHostPort(p.ip, strconv.Itoa(pagePort)) + debug.Path
}

// whoWorks names those whom the lock does not.
func whoWorks(holder string, alive []span) string {
	if len(alive) == 0 && holder == "" {
		return "nobody"
	}
	if len(alive) == 0 {
		return "nobody yet"
	}
	var texts []string
	for _, s := range alive {
		text := "since " + s.from.Format(stampLayout)
		if s.pod != holder {
			text = s.pod + " " + text
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, " AND ")
}
