package main

import (
	"cmp"
	"slices"
	"time"
)

// span is one time that a process' run function was alive, by the process' own
// account. All processes read the same machine's clock.
type span struct {
	election string
	pod      string
	from     time.Time
	// to is zero while it is alive.
	to time.Time
}

// until is when the span ended, or now while it has not.
func (s span) until(now time.Time) time.Time {
	if s.to.IsZero() {
		return now
	}
	return s.to
}

// clash is the time that two spans of one election had in common.
type clash struct {
	first, second span
	length        time.Duration
}

// clashes finds every pair of spans of one election that were alive at once,
// longest first. A span of a process may not meet an earlier one of the same
// process either.
func clashes(spans []span, now time.Time) []clash {
	sorted := slices.Clone(spans)
	slices.SortFunc(sorted, func(a, b span) int { return a.from.Compare(b.from) })
	var found []clash
	for i, first := range sorted {
		for _, second := range sorted[i+1:] {
			if first.election != second.election {
				continue
			}
			end := first.until(now)
			if second.until(now).Before(end) {
				end = second.until(now)
			}
			if length := end.Sub(second.from); length > 0 {
				found = append(found, clash{first, second, length})
			}
		}
	}
	slices.SortFunc(found, func(a, b clash) int { return cmp.Compare(b.length, a.length) })
	return found
}

// idle is how long nobody worked on an election between two instants.
func idle(spans []span, election string, from, to time.Time) time.Duration {
	var mine []span
	for _, s := range spans {
		if s.election == election {
			mine = append(mine, s)
		}
	}
	slices.SortFunc(mine, func(a, b span) int { return a.from.Compare(b.from) })
	total, covered := time.Duration(0), from
	for _, s := range mine {
		start, end := s.from, s.until(to)
		if start.After(to) {
			break
		}
		if start.After(covered) {
			total += start.Sub(covered)
		}
		if end.After(covered) {
			covered = end
		}
	}
	if to.After(covered) {
		total += to.Sub(covered)
	}
	return total
}

// working lists the spans of an election that are alive.
func working(spans []span, election string) []span {
	var alive []span
	for _, s := range spans {
		if s.election == election && s.to.IsZero() {
			alive = append(alive, s)
		}
	}
	return alive
}
