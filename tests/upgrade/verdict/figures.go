package verdict

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Figures are what can be counted and measured.
type Figures struct {
	// Flips are how long after each change of the default a pod of that revision led all elections that the revisions
	// share; those that did not come to that before the next change are Unfinished.
	Flips      []time.Duration
	Unfinished int
	// Terms counts those of all elections; Leaderless is the longest time from a holder's last write of the lock to the next
	// one's first, and where it was; locks that were deleted are left out.
	Terms        int
	Leaderless   time.Duration
	LeaderlessAt string
	// LateWrites came after their writer's term, the last of them so long after the next term had begun.
	LateWrites int
	Overlap    time.Duration
	// Guarded counts the guarded writes, Objects different objects (a status is one of its own) and Most the writes of the
	// one that was written most often.
	Guarded, Objects, Most int
	MostOf                 string
	// Needless were accepted and changed nothing, Unanswered have no answer in the log: those of the revisions.
	Needless, Unanswered int
	// Spans are all times in which objects were not as wanted.
	Spans    []Span
	Requests Requests
}

func (j *judge) figures(all map[string][]work) {
	f := &j.verdict.Figures
	f.Requests = j.Requests
	writes := map[string][]work{}
	pods := map[string]bool{}
	for _, of := range all {
		for _, w := range of {
			pods[w.Pod] = true
			key := fmt.Sprint(w.Resource, " ", w.Namespace, "/", w.Name, " ", w.UID)
			writes[key] = append(writes[key], w)
			f.Guarded++
		}
	}
	f.Objects = len(writes)
	for _, key := range slices.Sorted(maps.Keys(writes)) {
		if n := len(writes[key]); n > f.Most {
			f.Most, f.MostOf = n, key[:strings.LastIndex(key, " ")]
		}
	}
	for pod, n := range j.history.Needless {
		if pods[pod] {
			f.Needless += n
		}
	}
	for _, lock := range slices.Sorted(maps.Keys(j.terms)) {
		terms := j.terms[lock]
		f.Terms += len(terms)
		for i := 1; i < len(terms); i++ {
			if terms[i-1].How == "deleted" {
				continue // with the revision whose lock it was
			}
			if gap := terms[i].From.Sub(terms[i-1].To); gap > f.Leaderless {
				f.Leaderless, f.LeaderlessAt = gap, fmt.Sprintf("%s, %s by %s", lock, cmp.Or(terms[i-1].How, "lost"), terms[i-1].Pod)
			}
		}
	}
	j.measureFlips()
}

// measureFlips measures from each change of the default, but the first, to the last shared election of that revision's.
func (j *judge) measureFlips() {
	for i := 1; i < len(j.flips); i++ {
		f, until := j.flips[i], ^uint64(0)
		if i+1 < len(j.flips) {
			until = j.flips[i+1].version
		}
		led, slowest := 0, time.Duration(0)
		shared := 0
		for _, d := range j.Duties {
			if d.PerRevision {
				continue
			}
			shared++
			for _, t := range j.terms[d.Lock] {
				if t.Key != f.revision || t.Start > until || t.End != 0 && t.End < f.version {
					continue
				}
				led++
				slowest = max(slowest, t.From.Sub(f.at))
				break
			}
		}
		if led < shared {
			j.verdict.Unfinished++
			continue
		}
		j.verdict.Figures.Flips = append(j.verdict.Figures.Flips, slowest)
	}
}

// Quantile is the smallest of some durations that at least that part of them does not exceed; 0 for none.
func Quantile(all []time.Duration, part float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	n := int(part * float64(len(sorted)))
	if float64(n) < part*float64(len(sorted)) {
		n++
	}
	return sorted[max(n, 1)-1]
}

// String is the figures as lines of text.
func (f Figures) String() string {
	var out strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	line("flip → all shared elections led by the new default: median %v, p99 %v, of %d flips (%d overtaken by the next)",
		round(Quantile(f.Flips, 0.5)), round(Quantile(f.Flips, 0.99)), len(f.Flips), f.Unfinished)
	line("terms: %d; nobody led for %v at most (%s)", f.Terms, round(f.Leaderless), f.LeaderlessAt)
	line("writes after the writer's term: %d, up to %v after the next one's began", f.LateWrites, round(f.Overlap))
	line("guarded writes: %d to %d objects, %.1f each, %d at most (%s); %d changed nothing, %d without an answer in the log",
		f.Guarded, f.Objects, float64(f.Guarded)/float64(max(1, f.Objects)), f.Most, f.MostOf, f.Needless, f.Unanswered)
	for _, l := range f.longest() {
		line("%s", l)
	}
	line("HTTP requests: %d sent, %d failed (drain %v)", f.Requests.Sent, f.Requests.Failed, f.Requests.Drain)
	return out.String()
}

// longest is the longest span of each kind and cause.
func (f Figures) longest() []string {
	type group struct {
		n       int
		longest Span
	}
	groups := map[string]group{}
	for _, s := range f.Spans {
		name := s.Kind + ", " + s.Cause()
		g := groups[name]
		g.n++
		if s.Length >= g.longest.Length {
			g.longest = s
		}
		groups[name] = g
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		g := groups[name]
		during := g.longest.Step
		if during != "" {
			during = ", during: " + during
		}
		lines = append(lines, fmt.Sprintf("not as wanted (%s): %d times, %v at most (%s/%s: %s%s)",
			name, g.n, round(g.longest.Length), g.longest.Namespace, g.longest.Name, g.longest.Why, during))
	}
	return lines
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
