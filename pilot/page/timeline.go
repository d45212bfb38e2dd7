package page

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// bar is a part of an election's timeline, in percent of its width.
type bar struct {
	X, Width float64
	// Class is acting, pending (the holder does not act) or gap. Sign is the sign of the revision.
	Class string
	Sign  int
	// Wide reports that the sign fits.
	Wide  bool
	Title string
}

// mark is the start of a term.
type mark struct {
	X float64
	// Of is the number of marks that are drawn as one.
	Of    int
	Title string
}

// thinnest is the minimum width of a gap, so that a handover of milliseconds is visible. roomyFrom is the minimum width of
// a bar with a sign. marksApart is the minimum distance of marks, their width on a phone.
const (
	thinnest   = 0.4
	roomyFrom  = 4.0
	marksApart = 0.8
)

// span is the period of a timeline.
type span struct{ from, to time.Time }

// at returns the position of a time in percent.
func (s span) at(t time.Time) float64 {
	whole := s.to.Sub(s.from)
	if whole <= 0 {
		return 0
	}
	return min(100, max(0, 100*float64(t.Sub(s.from))/float64(whole)))
}

// changes reports whether there is a change in the period.
func (s span) changes(all []Change) bool {
	return len(all) > 1 && all[len(all)-1].At.After(s.from)
}

// bars returns the bars of changes: first acting leaders, then the periods without, which are drawn above.
func (s span) bars(changes []Change, sign func(revision string) int) (all []bar) {
	var above []bar
	for i, c := range changes {
		end := s.to
		if i+1 < len(changes) {
			end = changes[i+1].At
		}
		if !end.After(s.from) || !c.At.Before(s.to) {
			continue
		}
		revision, _ := k8sleaderelection.ParseRevisionKey(c.Key)
		b := bar{X: s.at(c.At), Class: c.class(), Title: c.title(end, i+1 == len(changes)), Sign: sign(revision)}
		b.Width = s.at(end) - b.X
		b.Wide = b.Width >= roomyFrom && c.Leader != ""
		if c.Acting {
			all = append(all, b)
			continue
		}
		b.Width = max(thinnest, b.Width)
		b.X = min(b.X, 100-b.Width)
		above = append(above, b)
	}
	return append(all, above...)
}

// marks returns the starts of terms. Close marks are merged.
func (s span) marks(changes []Change) (all []mark) {
	for i, c := range changes {
		if i == 0 || c.Leader == "" || c.sameTerm(changes[i-1]) || c.At.Before(s.from) || c.At.After(s.to) {
			continue
		}
		m := mark{X: s.at(c.At), Of: 1, Title: clock(c.At) + " " + c.after(changes[i-1])}
		if n := len(all); n > 0 && m.X-all[n-1].X < marksApart {
			m.X, m.Of = all[n-1].X, all[n-1].Of+1
			m.Title = fmt.Sprintf("%d changes, last: %s", m.Of, clock(c.At)+" "+c.after(changes[i-1]))
			all[n-1] = m
			continue
		}
		all = append(all, m)
	}
	return all
}

// sameTerm reports whether holder and term are the same.
func (c Change) sameTerm(before Change) bool {
	return c.Leader == before.Leader && c.Transitions == before.Transitions
}

func (c Change) class() string {
	switch {
	case c.Leader == "":
		return "gap"
	case !c.Acting:
		return "pending"
	}
	return "acting"
}

func (c Change) title(end time.Time, open bool) string {
	lasted := fmt.Sprintf("%s, for %s", clock(c.At), durationText(end.Sub(c.At)))
	if open {
		lasted = "since " + clock(c.At)
	}
	switch c.class() {
	case "gap":
		return "no holder, " + lasted
	case "pending":
		return c.who() + " held the lock without acting, " + lasted
	}
	return c.who() + " led, " + lasted
}

func (c Change) who() string {
	revision, remote := k8sleaderelection.ParseRevisionKey(c.Key)
	switch {
	case revision == "":
		return c.Leader
	case remote:
		return c.Leader + " (" + revision + ", remote)"
	}
	return c.Leader + " (" + revision + ")"
}

// after describes the difference. It is empty if the difference is not shown.
func (c Change) after(before Change) string {
	switch {
	case c.Leader == "" && before.Leader != "":
		return before.who() + " released the lock"
	case c.Leader == "":
		return ""
	case before.Leader == "":
		return c.who() + " acquired the lock"
	case c.Leader != before.Leader:
		return "changed from " + before.who() + " to " + c.who()
	case c.Transitions != before.Transitions:
		return c.who() + " began a new term"
	case c.Acting && !before.Acting:
		return c.who() + " started acting"
	case !c.Acting:
		return c.who() + " holds the lock without acting"
	}
	return ""
}

// event is an entry of the list below the timeline.
type event struct {
	At             time.Time
	Election, What string
}

// mostEvents bounds the list.
const mostEvents = 20

// events returns the newest changes of all elections, newest first.
func (s span) events(of map[name][]Change) (all []event) {
	namespaces := map[string]bool{}
	for n := range of {
		namespaces[n.namespace] = true
	}
	for n, changes := range of {
		election := n.lock
		if len(namespaces) > 1 {
			election = n.namespace + "/" + n.lock
		}
		for i := max(1, len(changes)-2*mostEvents); i < len(changes); i++ {
			if what := happened(changes, i); what != "" && !changes[i].At.Before(s.from) {
				all = append(all, event{At: changes[i].At, Election: election, What: what})
			}
		}
	}
	slices.SortFunc(all, func(a, b event) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Election, b.Election))
	})
	return all[:min(len(all), mostEvents)]
}

// happened describes change i and the time without an acting leader before it. An acquisition is described when its holder
// starts to act. It is empty if the change is not listed.
func happened(changes []Change, i int) string {
	c := changes[i]
	if i+1 < len(changes) && c.begins(changes[i+1]) {
		return ""
	}
	what := c.after(changes[i-1])
	if i > 1 && changes[i-1].begins(c) && !changes[i-1].sameTerm(changes[i-2]) {
		what = changes[i-1].after(changes[i-2])
	}
	if !c.Acting || changes[i-1].Acting || what == "" {
		return what
	}
	gap := i - 1
	for gap > 0 && !changes[gap-1].Acting {
		gap--
	}
	return what + ", after " + durationText(c.At.Sub(changes[gap].At)) + " without an acting leader"
}

// begins reports whether the holder of c starts acting in next.
func (c Change) begins(next Change) bool {
	return c.Leader != "" && !c.Acting && next.Acting && next.sameTerm(c)
}

// durationText returns a rounded duration.
func durationText(d time.Duration) string {
	switch {
	case d < 0:
		return "0 s"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05") }
