package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// tally is what became of a room's mutants.
type tally struct {
	room                              string
	mutants, killed, slow, equivalent int
	untried                           int
	// survivors have no reason, stale reasons have no survivor.
	survivors []survivor
	stale     []string
}

// survivor is a mutant that no test noticed.
type survivor struct {
	key, position, outcome string
}

func count(r room, p *planted, known state, excused excuses) *tally {
	t := &tally{room: r.name, mutants: len(p.mutants)}
	keys, packages, results := map[string]bool{}, map[string]bool{}, known.all()
	for _, m := range p.mutants {
		key := m.key()
		keys[key], packages[shortPath(m.pkg.path)] = true, true
		result, tried := results[key]
		_, reason := excused[key]
		switch {
		case !tried:
			t.untried++
		case result.killed():
			t.killed++
			if result.Outcome == outcomeTimeout {
				t.slow++
			}
			if reason {
				t.stale = append(t.stale, key+" (killed by "+result.By+")")
			}
		case reason:
			t.equivalent++
		default:
			t.survivors = append(t.survivors, survivor{key, m.position(), result.Outcome})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(excused)) {
		name, _, _ := strings.Cut(key, " ")
		if packages[name] && !keys[key] && p.owns(key) {
			t.stale = append(t.stale, key+" (there is no such mutant)")
		}
	}
	return t
}

// owns reports whether a reason that fits no mutant is this room's business. Of the rooms that
// share a package, it is the one that has the function; where none has it any more, the
// one that takes all files but those of the others.
func (p *planted) owns(key string) bool {
	place, _, _ := strings.Cut(key, ":")
	if len(p.room.files) == 0 {
		return !p.elsewhere[place]
	}
	return slices.ContainsFunc(p.mutants, func(m *mutant) bool { return m.place() == place })
}

// report prints the survivors and the table, and says whether all is well.
func report(out io.Writer, tallies []*tally) bool {
	sound := true
	for _, t := range tallies {
		for _, s := range t.survivors {
			note := ""
			if s.outcome == outcomeUnreached {
				note = " (no test comes past it)"
			}
			fmt.Fprintf(out, "survived: %s\n          %s%s\n", s.key, s.position, note)
		}
		for _, key := range t.stale {
			fmt.Fprintf(out, "excuses nothing: %s\n", key)
		}
		sound = sound && len(t.survivors) == 0 && len(t.stale) == 0
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "room\tmutants\tkilled\tof these by time-out\tequivalent\tsurvived\tnot tried")
	for _, t := range tallies {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\n", t.room, t.mutants, t.killed, t.slow, t.equivalent, len(t.survivors), t.untried)
	}
	w.Flush()
	return sound
}
