package verdict

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"incumbent.dev/incumbent/internal/audit"
)

// Figures are counts and durations.
type Figures struct {
	// Flips are the durations from each change of the default revision until that revision led all shared elections.
	// Unfinished counts the flips that were followed by the next one before that.
	Flips      []time.Duration
	Unfinished int
	// Terms counts the terms of all elections. Leaderless is the longest time from the last write of a holder to the
	// first write of the next one. It leaves out deleted locks.
	Terms        int
	Leaderless   time.Duration
	LeaderlessAt string
	// LateWrites counts writes after the writer's term. Overlap is the longest time by which the next term had begun.
	LateWrites int
	Overlap    time.Duration
	// Guarded counts the guarded writes, Objects the objects. A status counts as an object of its own.
	Guarded, Objects int
	// Unanswered counts guarded writes without a logged response.
	Unanswered int
	Requests   Requests
}

func (j *judge) measure(all map[string][]guarded) {
	f := &j.verdict.Figures
	f.Requests = j.Requests
	objects := map[string]bool{}
	for _, writes := range all {
		for _, w := range writes {
			objects[w.Resource+" "+w.UID] = true
			f.Guarded++
		}
	}
	f.Objects = len(objects)
	for _, lock := range j.history.Locks() {
		if lock.Namespace == j.Namespace && slices.ContainsFunc(j.Guards, func(g audit.Guard) bool { return g.Has(lock) }) {
			j.measureTerms(lock)
		}
	}
	j.measureFlips()
}

func (j *judge) measureTerms(lock audit.Lock) {
	c := j.courses[lock]
	f := &j.verdict.Figures
	for _, gap := range c.Gaps {
		j.add(Incomplete, "%s", gap)
	}
	f.Terms += len(c.Terms)
	if gap, next := c.Leaderless(); gap > f.Leaderless {
		f.Leaderless = gap
		former := c.Terms[next-1]
		f.LeaderlessAt = fmt.Sprintf("%s, %s by %s", lock.Name, cmp.Or(former.Ended, "lost"), former.Pod)
	}
}

// measureFlips measures every change of the default revision except the first.
func (j *judge) measureFlips() {
	for i := 1; i < len(j.flips); i++ {
		f := j.flips[i]
		until := ^uint64(0)
		if i+1 < len(j.flips) {
			until = j.flips[i+1].version
		}
		finished := true
		slowest := time.Duration(0)
		for _, g := range j.Guards {
			if g.PerRevision {
				continue
			}
			terms := Terms(j.courses, j.Namespace, g.Lock)
			first := slices.IndexFunc(terms, func(t audit.Term) bool {
				return t.Key == f.revision && t.Start.Version <= until && (t.Ended == "" || t.End.Version >= f.version)
			})
			if first < 0 {
				finished = false
				continue
			}
			slowest = max(slowest, terms[first].Start.Answered.Sub(f.at))
		}
		if !finished {
			j.verdict.Unfinished++
			continue
		}
		j.verdict.Figures.Flips = append(j.verdict.Figures.Flips, slowest)
	}
}

// quantile returns the smallest duration that at least this part of the durations does not exceed. It returns 0 for none.
func quantile(all []time.Duration, part float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(all))[int(math.Ceil(part*float64(len(all))))-1]
}

// String returns the figures as lines of text.
func (f Figures) String() string {
	var out strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	line("flip until the new default revision leads all shared elections: median %v, p99 %v (%d flips, %d unfinished)",
		round(quantile(f.Flips, 0.5)), round(quantile(f.Flips, 0.99)), len(f.Flips), f.Unfinished)
	line("terms: %d; longest time without a leader: %v (%s)", f.Terms, round(f.Leaderless), f.LeaderlessAt)
	line("writes after the writer's term: %d, up to %v after the next term began", f.LateWrites, round(f.Overlap))
	line("guarded writes: %d to %d objects; %d without a logged response", f.Guarded, f.Objects, f.Unanswered)
	line("HTTP requests: %d sent, %d failed (drain %v)", f.Requests.Sent, f.Requests.Failed, f.Requests.Drain)
	return out.String()
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
