package istiod

import (
	"bufio"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"incumbent.dev/incumbent/internal/testutil/lives"
)

// span is a period in which a process runs the functions of an election.
type span struct {
	process, election string
	lives.Span
}

// line is the beginning of a log line of both programs.
var line = regexp.MustCompile(`^(\d{4}-\d\d-\d\dT[0-9:.]+Z)\s+\w+\s+(.*)$`)

// The messages that begin and end a span.
var (
	istiodChange    = regexp.MustCompile(`leader election lock (obtained|lost): (\S+)`)
	incumbentChange = regexp.MustCompile(`election phase changed.*\bfrom=(\S+) to=(\S+).*`)
	electionName    = regexp.MustCompile(`\belection=(\S+)`)
)

// change is the begin or end of a span.
type change struct {
	election string
	active   bool
}

// parse returns the change that a log line reports.
func parse(text string) (c change, found bool) {
	if m := istiodChange.FindStringSubmatch(text); m != nil {
		return change{m[2], m[1] == "obtained"}, true
	}
	m, name := incumbentChange.FindStringSubmatch(text), electionName.FindStringSubmatch(text)
	if m == nil || name == nil {
		return change{}, false
	}
	// A leader that drains still runs its functions.
	return change{name[1][strings.LastIndex(name[1], "/")+1:], m[2] == "leading" || m[2] == "draining"}, true
}

// readSpans returns the spans in a log. ends are the times at which its processes ended. The last one is the present time, if
// a process still runs.
func readSpans(process, path string, ends []time.Time) ([]span, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var spans []span
	open := map[string]time.Time{}
	end := func(at time.Time) {
		for election, from := range open {
			spans = append(spans, span{process, election, lives.Span{From: from, To: at}})
		}
		clear(open)
	}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		m := line.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		c, found := parse(m[2])
		at, err := time.Parse(time.RFC3339Nano, m[1])
		if !found || err != nil {
			continue
		}
		for len(ends) > 1 && ends[0].Before(at) {
			end(ends[0])
			ends = ends[1:]
		}
		from, is := open[c.election]
		switch {
		case c.active && !is:
			open[c.election] = at
		case !c.active && is:
			spans = append(spans, span{process, c.election, lives.Span{From: from, To: at}})
			delete(open, c.election)
		}
	}
	if len(ends) > 0 {
		end(ends[0])
	}
	return spans, lines.Err()
}

// figures are the longest overlap of two processes, the longest time without an active one, and the time until the last process
// began, of an election in a period.
type figures struct {
	overlap, idle, until time.Duration
	order                []string // the processes, in the order in which they began
}

// measure returns the figures of an election between two times.
func measure(spans []span, election string, from, to time.Time) (f figures) {
	spans = slices.DeleteFunc(slices.Clone(spans), func(s span) bool {
		return s.election != election || s.To.Before(from) || s.From.After(to)
	})
	slices.SortFunc(spans, func(a, b span) int { return a.From.Compare(b.From) })
	covered := from
	for i, s := range spans {
		f.order = append(f.order, s.process)
		f.until = max(f.until, s.From.Sub(from))
		if s.From.After(covered) {
			f.idle = max(f.idle, s.From.Sub(covered))
		}
		if s.To.After(covered) {
			covered = s.To
		}
		for _, other := range spans[:i] {
			if other.process != s.process {
				f.overlap = max(f.overlap, lives.Overlap(s.Span, other.Span, to))
			}
		}
	}
	if to.After(covered) {
		f.idle = max(f.idle, to.Sub(covered))
	}
	f.order = slices.Compact(f.order)
	return f
}
