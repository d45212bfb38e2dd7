package ctl

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	logs "incumbent.dev/incumbent/internal/audit"
	"incumbent.dev/incumbent/internal/inspect"
)

// width is the width of the output.
const width = 80

// paragraphs is the text of a report.
type paragraphs struct{ strings.Builder }

// line adds a paragraph. Its first line has the given prefix; the following lines are indented as far.
func (p *paragraphs) line(prefix, format string, args ...any) {
	indent := strings.Repeat(" ", len(prefix))
	current := prefix
	empty := true
	for _, word := range strings.Fields(inspect.Printable(fmt.Sprintf(format, args...))) {
		if !empty && len(current)+1+len(word) > width {
			p.WriteString(current + "\n")
			current = indent
			empty = true
		}
		if !empty {
			current += " "
		}
		current += word
		empty = false
	}
	p.WriteString(current + "\n")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// auditText returns the report as text.
func auditText(r logs.Report, files int) string {
	p := &paragraphs{}
	p.line("", "%s, %s, %s.", count(files, "file"), count(r.Events, "event"), count(r.Writes, "write"))
	if r.Writes > 0 {
		p.line("", "From %s to %s (%v).", exact(r.First), exact(r.Last), r.Last.Sub(r.First).Round(time.Second))
	}
	if r.ByTime > 0 {
		p.line("", "APPROXIMATE: the log has no version for %s. Time stamps were compared, which depend on the clocks of the API servers.", count(r.ByTime, "judged write"))
	}
	if len(r.Locks) > 0 {
		p.WriteString("\nLOCKS\n")
	}
	for _, l := range r.Locks {
		p.lock(l)
	}
	if len(r.Findings) > 0 {
		fmt.Fprintf(p, "\nFINDINGS: %d\n", len(r.Findings))
	}
	for i, f := range r.Findings {
		p.finding(i+1, f)
	}
	if len(r.NotJudged)+len(r.Notes)+len(r.Incomplete) > 0 {
		p.WriteString("\nNOTES\n")
	}
	for _, what := range slices.Sorted(maps.Keys(r.NotJudged)) {
		p.line("- ", "%s of %s not judged: the log shows no lock that guards them. --guard assigns them to a lock.", count(r.NotJudged[what], "write"), what)
	}
	for _, note := range r.Notes {
		p.line("- ", "%s.", note)
	}
	for _, why := range r.Incomplete {
		p.line("- ", "THE LOG DOES NOT SUFFICE: %s.", why)
	}
	if len(r.Findings)+len(r.Incomplete) == 0 {
		p.WriteString("\nNo findings.\n")
	}
	return p.String()
}

func exact(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }

func took(s logs.Seconds) string { return time.Duration(s).Round(time.Millisecond).String() }

func (p *paragraphs) lock(l logs.LockReport) {
	p.line("  ", "%s/%s (%s)", l.Namespace, l.Name, l.Resource)
	holder := "no leader"
	if l.Holder != "" {
		holder = "leader " + l.Holder
	}
	p.line("    ", "%s; at the end %s", count(l.Terms, "term")+", "+count(l.Changes, "change")+" of the leader", holder)
	if l.Leaderless > 0 {
		p.line("    ", "longest time without a leader %s, until %s", took(l.Leaderless), exact(l.LeaderlessUntil))
	}
	judged := "no write judged"
	if l.Judged > 0 {
		judged = fmt.Sprintf("%s judged, %d without the lock", count(l.Judged, "write"), l.Breaches)
	}
	p.line("    ", "%s", judged)
}

func (p *paragraphs) finding(n int, f logs.Finding) {
	prefix := fmt.Sprintf("%3d. ", n)
	rest := strings.Repeat(" ", len(prefix))
	lock := f.Lock.Namespace + "/" + f.Lock.Name
	switch f.Rule {
	case logs.Flapping:
		p.line(prefix, "%s changed its leader %d times between %s and %s", lock, f.Count, exact(f.First), clock(f.Last))
		return
	case logs.Leaderless:
		p.line(prefix, "%s had no leader for %s, from %s to %s: between %s and %s", lock, took(f.Late), exact(f.First), clock(f.Last), f.Pod, f.Next)
		return
	case logs.Unelected:
		p.line(prefix, "%s made %s without ever having held %s", f.Pod, count(f.Count, "write"), lock)
	default:
		p.line(prefix, "%s made %s after it lost %s", f.Pod, count(f.Count, "write"), lock)
		p.line(rest, "the term was %s; last write %s after the loss", f.Ended, took(f.Late))
	}
	if f.Next != "" {
		also := ""
		if f.Rule == logs.Interleaved {
			also = ", which also wrote"
		}
		p.line(rest, "overlap %s with %s%s", took(f.Overlap), f.Next, also)
	}
	p.line(rest, "from %s to %s%s", exact(f.First), clock(f.Last), map[bool]string{true: " (approximate)"}[f.Approximate])
	p.line(rest, "%s", strings.Join(f.Objects, ", "))
}
