package report

import (
	"fmt"
	"maps"
	"strings"
	"time"
)

// between is how long after the end of one scenario the next one of a run begins, at most.
const between = time.Minute

// Provenance says whether all scenarios are of one run. A scenario may be measured alone, with
// other code or on another machine: ratios within it hold, and comparing it with others does not.
func (r *Results) Provenance() string {
	var all []*Scenario
	var names []string
	for _, name := range Scenarios {
		if s := r.Scenarios[name]; s != nil {
			all, names = append(all, s), append(names, name)
		}
	}
	if len(all) == 0 {
		return "Nothing is measured.\n"
	}
	first, last := all[0], all[len(all)-1]
	end := last.Began.Add(seconds(last.Seconds))
	for i, s := range all[1:] {
		gap := s.Began.Sub(all[i].Began.Add(seconds(all[i].Seconds)))
		if s.Machine != first.Machine || !maps.Equal(s.Versions, first.Versions) || gap < -time.Second || gap > between {
			return fmt.Sprintf("**Not of one run**: %s.\n", strings.Join(each(names, all), "; "))
		}
	}
	if missing := len(Scenarios) - len(all); missing > 0 {
		return fmt.Sprintf("Of one run, without %d scenarios.\n", missing)
	}
	return fmt.Sprintf("All of one run, from %s to %s UTC.\n", first.Began.UTC().Format(time.DateTime), end.UTC().Format(time.TimeOnly))
}

func each(names []string, all []*Scenario) []string {
	var said []string
	for i, s := range all {
		said = append(said, fmt.Sprintf("%s at %s UTC with %s, on %s", names[i], s.Began.UTC().Format(time.DateTime), s.Versions[Ours], s.Machine))
	}
	return said
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
