package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Parts of the scenario crash.
const (
	Refused   = "refused"
	Swallowed = "swallowed"
)

// Roles of a process in idle elections.
const (
	Leader   = "leader"
	Follower = "follower"
)

// measurements are the rows of the first table, by scenario and part.
var measurements = []struct{ name, scenario, part string }{
	{"graceful handover", Graceful, ""},
	{"default revision changes", Steal, ""},
	{"leader killed", Kill, ""},
	{"leader cut off, connections refused", Crash, Refused},
	{"leader cut off, packets lost", Crash, Swallowed},
}

// Times returns the table of times until the next leader.
func (r *Results) Times() string {
	text := heading(3, "from", "elector", "timing", "median", "p99", "ratio of medians", "rounds with two leaders")
	for _, m := range measurements {
		s := r.Scenarios[m.scenario]
		if s == nil {
			continue
		}
		for _, x := range s.Series {
			if x.Part != m.part || len(x.Millis) == 0 {
				continue
			}
			d := SpreadOf(x.Millis)
			text += line(m.name, x.Library, x.Timing, millis(d.Median), millis(d.P99), ratio(d.Median, s.reference(x).Median), x.overlaps())
		}
	}
	return text
}

// reference returns the row of incumbent with the same part, and with the same timing if there is one.
func (s *Scenario) reference(row *Series) Spread {
	for _, sameTiming := range []bool{true, false} {
		for _, x := range s.Series {
			if x.Library == Ours && x.Part == row.Part && (x.Timing == row.Timing || !sameTiming) {
				return SpreadOf(x.Millis)
			}
		}
	}
	return Spread{}
}

func (x *Series) overlaps() string {
	n := 0
	longest := 0.0
	for _, o := range x.Overlap {
		if o > 0 {
			n++
		}
		longest = max(longest, o)
	}
	switch {
	case len(x.Overlap) == 0:
		return "–"
	case n == 0:
		return fmt.Sprintf("0 of %d", len(x.Overlap))
	}
	return fmt.Sprintf("%d of %d, at most %s", n, len(x.Overlap), millis(longest))
}

// Requests returns the table of idle elections.
func (r *Results) Requests() string {
	text := heading(2, "elector", "timing", "requests per minute", "leader: CPU s/hour", "follower: CPU s/hour")
	s := r.Scenarios[Requests]
	if s == nil {
		return text
	}
	for _, l := range s.Loads {
		if l.Role == Leader {
			text += line(l.Library, l.Timing, digits(s.perMinute(l.Library, l.Timing)), digits(s.cpu(l.Library, l.Timing, Leader)), digits(s.cpu(l.Library, l.Timing, Follower)))
		}
	}
	return text
}

// perMinute returns the requests of one leader and two followers.
func (s *Scenario) perMinute(library, timing string) (sum float64) {
	for _, l := range s.Loads {
		if l.Library == library && l.Timing == timing {
			for _, n := range l.PerMinute {
				sum += n
			}
		}
	}
	return sum
}

// cpu returns the mean of the processes of a role.
func (s *Scenario) cpu(library, timing, role string) float64 {
	sum := 0.0
	n := 0
	for _, l := range s.Loads {
		if l.Library == library && l.Timing == timing && l.Role == role {
			sum += l.CPU
			n++
		}
	}
	return sum / float64(max(n, 1))
}

// Scale returns the table of a process with many elections.
func (r *Results) Scale() string {
	text := heading(2, "role", "elector", "heap and stacks per election", "goroutines per election", "requests/s")
	s := r.Scenarios[Scale]
	if s == nil {
		return text
	}
	for _, x := range s.Sizes {
		text += line(x.Role, x.Library, digits(x.HeapKiB+x.StackKiB)+" KiB", digits(x.Goroutines), digits(x.PerSecond))
	}
	return text
}

// Herd returns the table of many candidates.
func (r *Results) Herd() string {
	text := heading(1, "from", "candidates", "median", "rejected writes", "reads")
	s := r.Scenarios[Crowd]
	if s == nil {
		return text
	}
	names := map[string]string{Stop: "leader stops", Steal: "default revision changes"}
	for _, x := range s.Herds {
		text += line(names[x.Event], fmt.Sprint(x.Candidates), millis(SpreadOf(x.Millis).Median), digits(x.Conflicts), digits(x.Reads))
	}
	return text
}

// Provenance returns the date, the machine and the versions of the scenarios.
func (r *Results) Provenance() string {
	groups := map[string][]string{}
	for _, name := range Scenarios {
		s := r.Scenarios[name]
		if s == nil {
			continue
		}
		var versions []string
		for _, library := range slices.Sorted(maps.Keys(s.Versions)) {
			versions = append(versions, library+" "+s.Versions[library])
		}
		how := fmt.Sprintf("%s, %s; %s", s.Began.UTC().Format("2006-01-02"), s.Machine, strings.Join(versions, ", "))
		groups[how] = append(groups[how], name)
	}
	var lines []string
	for _, how := range slices.Sorted(maps.Keys(groups)) {
		names := ""
		if len(groups) > 1 {
			names = strings.Join(groups[how], ", ") + ": "
		}
		lines = append(lines, fmt.Sprintf("Measured %s%s.\n", names, how))
	}
	return strings.Join(lines, "")
}
