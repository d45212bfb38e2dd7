package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Tables are a scenario's tables in Markdown; empty when it was not measured.
func (r *Results) Tables(scenario string) string {
	s := r.Scenarios[scenario]
	if s == nil {
		return "Not measured yet.\n"
	}
	var b strings.Builder
	for _, part := range s.parts() {
		if part != "" {
			fmt.Fprintf(&b, "**%s**\n\n", part)
		}
		b.WriteString(s.times(part) + "\n")
	}
	if len(s.Loads) > 0 {
		b.WriteString(s.requests() + "\n" + s.verbs() + "\n")
	}
	if len(s.Sizes) > 0 {
		b.WriteString(s.sizes() + "\n")
	}
	fmt.Fprintf(&b, "%s\n", s.made())
	return b.String()
}

// made says when and how a scenario was measured, and what that cost.
func (s *Scenario) made() string {
	var versions []string
	for _, name := range slices.Sorted(maps.Keys(s.Versions)) {
		versions = append(versions, name+" "+s.Versions[name])
	}
	return fmt.Sprintf("Measured %s in %.0f s on %s; %s. CPU time: %.1f s of the harness, %.1f s of API server and etcd.",
		s.Began.UTC().Format("2006-01-02 15:04 UTC"), s.Seconds, s.Machine, strings.Join(versions, ", "), s.HarnessCPU, s.ServerCPU)
}

func (s *Scenario) parts() []string {
	var parts []string
	for _, x := range s.Series {
		if !slices.Contains(parts, x.Part) {
			parts = append(parts, x.Part)
		}
	}
	return parts
}

// reference is ours to compare a row with: of the same part, and of the same timing if
// there is one, the first.
func (s *Scenario) reference(row Series) *Series {
	for _, sameTiming := range []bool{true, false} {
		for i, x := range s.Series {
			if x.Library == Ours && x.Part == row.Part && (x.Timing == row.Timing || !sameTiming) {
				return &s.Series[i]
			}
		}
	}
	return nil
}

// times is a table of distributions.
func (s *Scenario) times(part string) string {
	overlaps := slices.ContainsFunc(s.Series, func(x Series) bool { return x.Part == part && len(x.Overlap) > 0 })
	head := []string{"elector", "timing", "N", "min", "median", "p99", "max", "median: ratio to ours", "p99: ratio"}
	if overlaps {
		head = append(head, "rounds with two at once", "longest")
	}
	g := newGrid(2, head...)
	for _, x := range s.Series {
		if x.Part != part {
			continue
		}
		row := x.cells(s.reference(x))
		if overlaps {
			row = append(row, x.overlapCells()...)
		}
		g.row(row...)
	}
	return g.String()
}

func (x Series) cells(ours *Series) []string {
	d, o := SpreadOf(x.Millis), Spread{}
	if ours != nil {
		o = SpreadOf(ours.Millis)
	}
	name := x.Library
	if x.Case != "" {
		name += ", " + x.Case
	}
	n := fmt.Sprint(d.N)
	if x.Lost > 0 {
		n += fmt.Sprintf(" (+%d not in time)", x.Lost)
	}
	if d.N == 0 {
		return []string{name, x.Timing, n, "–", "–", "–", "–", "–", "–"}
	}
	return []string{
		name, x.Timing, n, millis(d.Min), millis(d.Median), millis(d.P99), millis(d.Max),
		ratio(d.Median, o.Median), ratio(d.P99, o.P99),
	}
}

func (x Series) overlapCells() []string {
	if len(x.Overlap) == 0 {
		return []string{"–", "–"}
	}
	n := 0
	for _, o := range x.Overlap {
		if o > 0 {
			n++
		}
	}
	return []string{fmt.Sprintf("%d of %d", n, len(x.Overlap)), millis(slices.Max(x.Overlap))}
}

// total is a load's requests per minute and election.
func (l Load) total() (sum float64) {
	for _, n := range l.PerMinute {
		sum += n
	}
	return sum
}

// whole sums one leader and two followers of a library and a timing.
func (s *Scenario) whole(library, timing string) (sum float64) {
	for _, l := range s.Loads {
		if l.Library == library && l.Timing == timing {
			sum += l.total()
		}
	}
	return sum
}

// requests is the table of whole elections and of CPU time.
func (s *Scenario) requests() string {
	g := newGrid(2, "elector", "timing", "requests per minute and election, 3 replicas", "ratio to ours",
		"CPU s/hour, leading 8", "ratio", "CPU s/hour, following 8", "ratio")
	for _, l := range s.Loads {
		if l.Role != Leader {
			continue
		}
		all, ours := s.whole(l.Library, l.Timing), s.whole(Ours, l.Timing)
		lead, follow := s.cpu(l.Library, l.Timing, Leader), s.cpu(l.Library, l.Timing, Follower)
		g.row(l.Library, l.Timing, digits(all), ratio(all, ours),
			digits(lead), ratio(lead, s.cpu(Ours, l.Timing, Leader)),
			digits(follow), ratio(follow, s.cpu(Ours, l.Timing, Follower)))
	}
	return g.String()
}

// Roles of a process in quiet elections.
const (
	Leader   = "leader"
	Follower = "follower"
)

// cpu is the mean over the processes of a role.
func (s *Scenario) cpu(library, timing, role string) float64 {
	sum, n := 0.0, 0
	for _, l := range s.Loads {
		if l.Library == library && l.Timing == timing && l.Role == role {
			sum, n = sum+l.CPU, n+1
		}
	}
	return sum / float64(max(n, 1))
}

// verbs is the table of requests by verb and role: each role's mean process.
func (s *Scenario) verbs() string {
	var all []string
	for _, l := range s.Loads {
		for verb := range l.PerMinute {
			if !slices.Contains(all, verb) {
				all = append(all, verb)
			}
		}
	}
	slices.Sort(all)
	g := newGrid(3, append([]string{"elector", "timing", "role"}, all...)...)
	type key struct{ library, timing, role string }
	done := map[key]bool{}
	for _, l := range s.Loads {
		k := key{l.Library, l.Timing, l.Role}
		if done[k] {
			continue
		}
		done[k] = true
		row := []string{l.Library, l.Timing, l.Role}
		for _, verb := range all {
			sum, n := 0.0, 0
			for _, m := range s.Loads {
				if (key{m.Library, m.Timing, m.Role}) == k {
					sum, n = sum+m.PerMinute[verb], n+1
				}
			}
			row = append(row, digits(sum/float64(n)))
		}
		g.row(row...)
	}
	return "Per minute and election, by one process of that role:\n\n" + g.String()
}

// sizes is the table of elections in one process.
func (s *Scenario) sizes() string {
	rows := slices.Clone(s.Sizes)
	slices.SortStableFunc(rows, func(a, b Size) int {
		return cmp.Or(cmp.Compare(a.Role, b.Role)*-1, cmp.Compare(a.Elections, b.Elections),
			cmp.Compare(slices.Index(order, a.Library), slices.Index(order, b.Library)))
	})
	g := newGrid(3, "role", "elections", "elector", "heap", "stacks", "heap + stacks: ratio to ours", "goroutines",
		"ratio", "requests/s", "ratio", "CPU s/hour", "ratio")
	for _, x := range rows {
		var o Size
		if ours := s.size(Ours, x.Role, x.Elections); ours != nil {
			o = *ours
		}
		name := x.Library
		if x.Failed != "" {
			g.row(x.Role, fmt.Sprint(x.Elections), name+": "+x.Failed, "–", "–", "–", "–", "–", "–", "–", "–", "–")
			continue
		}
		if x.Lost > 0 {
			name += fmt.Sprintf(" (lost %d terms meanwhile)", x.Lost)
		}
		g.row(x.Role, fmt.Sprint(x.Elections), name, kib(x.HeapKiB), kib(x.StackKiB), ratio(x.memory(), o.memory()),
			digits(x.Goroutines), ratio(x.Goroutines, o.Goroutines), digits(x.PerSecond), ratio(x.PerSecond, o.PerSecond),
			digits(x.CPU), ratio(x.CPU, o.CPU))
	}
	return "Heap, stacks, goroutines and CPU time are per election, requests are the process's:\n\n" + g.String()
}

var order = []string{Ours, Istio, ClientGo}

func (x Size) memory() float64 { return x.HeapKiB + x.StackKiB }

func (s *Scenario) size(library, role string, elections int) *Size {
	for i, x := range s.Sizes {
		if x.Library == library && x.Role == role && x.Elections == elections && x.Failed == "" {
			return &s.Sizes[i]
		}
	}
	return nil
}

func kib(v float64) string { return digits(v) + " KiB" }
