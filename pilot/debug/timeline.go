package debug

import (
	"fmt"
	"slices"
	"time"
)

// bar is a stretch of one election's timeline, in hundredths of its width.
type bar struct {
	X, Width float64
	// Class is acting, pending (held, but nobody acts) or gap; Sign the revision's.
	Class string
	Sign  int
	// Wide: there is room for the sign.
	Wide  bool
	Title string
}

// mark is an instant at which the lock went from one holder to another, or to a new term.
type mark struct {
	X float64
	// Of is how many there are so close to each other that they are drawn as one.
	Of    int
	Title string
}

// thinnest is how wide a gap is drawn at least: a handover of milliseconds is not to be missed in an hour.
// marksApart is how far two marks lie apart at least: the width of one on a telephone.
const (
	thinnest   = 0.4
	roomyFrom  = 4.0
	marksApart = 0.8
)

// span is the time that a timeline shows.
type span struct{ from, to time.Time }

// at is where an instant lies, in hundredths.
func (s span) at(t time.Time) float64 {
	whole := s.to.Sub(s.from)
	if whole <= 0 {
		return 0
	}
	return min(100, max(0, 100*float64(t.Sub(s.from))/float64(whole)))
}

// bars draws changes: first who acted, then, above, when nobody did.
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
		revision, _ := revisionOf(c.Key)
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

// marks are where another holder or a new term begins. Those that would cover each other are one.
func (s span) marks(changes []Change) (all []mark) {
	for i, c := range changes {
		if i == 0 || c.Leader == "" || c.sameTerm(changes[i-1]) || c.At.Before(s.from) || c.At.After(s.to) {
			continue
		}
		m := mark{X: s.at(c.At), Of: 1, Title: clock(c.At) + " " + c.after(changes[i-1])}
		if n := len(all); n > 0 && m.X-all[n-1].X < marksApart {
			m.X, m.Of = all[n-1].X, all[n-1].Of+1
			m.Title = fmt.Sprintf("%d changes, the last: %s", m.Of, clock(c.At)+" "+c.after(changes[i-1]))
			all[n-1] = m
			continue
		}
		all = append(all, m)
	}
	return all
}

// sameTerm reports whether the holder is the same, in the same term.
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
		return "nobody held it, " + lasted
	case "pending":
		return c.who() + " held it without acting, " + lasted
	}
	return c.who() + " led, " + lasted
}

func (c Change) who() string {
	revision, remote := revisionOf(c.Key)
	switch {
	case revision == "":
		return c.Leader
	case remote:
		return c.Leader + " (" + revision + ", remote)"
	}
	return c.Leader + " (" + revision + ")"
}

// after says in words what became different; empty: nothing worth a mark.
func (c Change) after(before Change) string {
	switch {
	case c.Leader == "" && before.Leader != "":
		return before.who() + " gave it up: nobody holds it"
	case c.Leader == "":
		return ""
	case before.Leader == "":
		return c.who() + " took it"
	case c.Leader != before.Leader:
		return "passed from " + before.who() + " to " + c.who()
	case c.Transitions != before.Transitions:
		return c.who() + " began a new term"
	case c.Acting && !before.Acting:
		return c.who() + " acts now"
	case !c.Acting:
		return c.who() + " holds it, but does not act"
	}
	return ""
}

// event is a line of the list below the timeline.
type event struct {
	At             time.Time
	Election, What string
}

// mostEvents bounds the list.
const mostEvents = 20

// events are the newest changes of all elections, the newest first.
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
		if byTime := b.At.Compare(a.At); byTime != 0 {
			return byTime
		}
		if a.Election < b.Election {
			return -1
		}
		return 1
	})
	return all[:min(len(all), mostEvents)]
}

// happened says what change i was, and for how long nobody had acted before it. That a holder took the lock is told when
// it acts, which it mostly does at once; empty: nothing worth a line.
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
	return what + "; nobody acted for " + durationText(c.At.Sub(changes[gap].At))
}

// begins reports whether the holder of c, which does not act yet, does so in next.
func (c Change) begins(next Change) bool {
	return c.Leader != "" && !c.Acting && next.Acting && next.sameTerm(c)
}

// durationText is a duration for people: two figures are enough.
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
