package page

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

// view has the values of the template.
type view struct {
	Query   query
	Process chip
	State   State
	// Default is the default revision. Known is false until it is synced.
	Default                   chip
	Known                     bool
	Here, Leaderless, Unknown int
	// Statuses and Revisions are the choices of the filter. Problems and All are links to the rows without a leader and to all rows.
	Statuses      []status
	Revisions     []string
	Problems, All string
	Ranges, Ifs   []choice
	Close         string
	If            string
	Groups        []group
	Shown         int
	// Lanes are the rows that changed.
	Lanes     []row
	From, Mid string
	Observed  string
	Events    []event
}

// chip is a revision with its colour and glyph.
type chip struct {
	Sign     int
	Revision string
	Remote   bool
}

// choice is a link or the current selection.
type choice struct {
	Chip   chip
	Text   string
	Link   string
	Chosen bool
}

// row is the row of an election.
type row struct {
	inspect.Election
	// Anchor is the id of the row, for merging.
	Anchor string
	Chip   chip
	Mine   bool
	Status status
	// Age describes the last renewal, if the process does not know the validity.
	Age string
	// Notes are the reasons for the state.
	Notes []note
	// Led reports that the recorded holder leads, as far as the process knows.
	Led bool
	// OffDefault reports that the revision of the leader is not the default revision.
	OffDefault bool
	// Witness is the witness of the holder. It is empty if unknown.
	Witness string
	// Since is the start of the term. It is a time and not a duration, so that rows without changes remain equal.
	Since     string
	Validity  *validity
	Followers []follower
	Summary   string
	Guard     guard
	If        *outcome
	Bars      []bar
	Marks     []mark
}

// validity is the bar of the remaining validity.
type validity struct{ ID, Class, Text, Whole string }

type follower struct {
	inspect.Candidate
	Chip chip
}

// guard has the states of fence and gate.
type guard struct{ Class, Fence, Gate string }

type outcome struct {
	inspect.Outcome
	Chip  chip
	Moves bool
}

func (h history) chip(key string) chip {
	revision, remote := k8sleaderelection.ParseRevisionKey(key)
	return chip{Sign: h.sign(revision), Revision: revision, Remote: remote}
}

// view returns the values of a frame for a query.
func (f *frame) view(q query) view {
	span := q.span(f)
	v := view{
		Query: q, State: f.state, Process: f.history.chip(f.state.Revision),
		Default: f.history.chip(f.state.Default.Revision), Known: f.state.Default.Synced,
		From: ago(span.to.Sub(span.from)), Mid: ago(span.to.Sub(span.from) / 2),
		Observed: durationText(f.at.Sub(f.history.begin(f.at))),
		Close:    q.asking(false, "").link(), All: q.unfiltered().link(), Problems: q.unfiltered().of(noLeader).link(),
		Statuses: statuses, Revisions: f.history.named(),
	}
	for _, r := range ranges {
		v.Ranges = append(v.Ranges, choice{Text: r.text, Link: q.within(r.name).link(), Chosen: q.Range == r.name})
	}
	for _, revision := range v.Revisions {
		v.Ifs = append(v.Ifs, choice{Chip: f.history.chip(revision), Text: revision, Link: q.asking(true, revision).link(), Chosen: q.Asks && q.Default == revision})
	}
	v.Ifs = append(v.Ifs, choice{Text: "none", Link: q.asking(true, "").link(), Chosen: q.Asks && q.Default == ""})
	tested := slices.ContainsFunc(f.state.Elections, func(e inspect.Election) bool { return e.Process.Fence != nil })
	var rows []row
	for i, e := range f.state.Elections {
		r := f.row(i, e, q, span)
		v.Here += count(e.Process.Leading)
		v.Leaderless += count(r.Status == noLeader)
		v.Unknown += count(r.Status == unknown)
		if r.Process.Fence == nil && tested {
			r.Guard.Fence = "no guards"
		}
		if q.selects(r) {
			rows = append(rows, r)
		}
	}
	v.show(f, rows, span)
	return v
}

// show adds the selected rows.
func (v *view) show(f *frame, rows []row, span span) {
	v.Shown = len(rows)
	v.If = sum(rows)
	changed := map[name][]Change{}
	for _, r := range rows {
		n := nameOf(r.Election)
		if all := f.history.of[n]; span.changes(all) {
			changed[n] = all
			v.Lanes = append(v.Lanes, r)
		}
	}
	v.Events = span.events(changed)
	v.Groups = groups(rows)
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func (f *frame) row(i int, e inspect.Election, q query, span span) row {
	changes := f.history.of[nameOf(e)]
	r := row{
		Election: e, Anchor: "e-" + strings.Join([]string{e.Cluster, e.Namespace, e.Lock, e.Name}, "."),
		Chip: f.history.chip(e.Key), Mine: e.Holder != "" && e.Holder == f.state.Identity,
		Bars: span.bars(changes, f.history.sign), Marks: span.marks(changes), Guard: guardOf(e.Process),
	}
	if began, seen := termBegan(changes); e.Led() && !e.Since.IsZero() {
		r.Since = "since " + f.day(e.Since)
	} else if !began.IsZero() {
		r.Since = "since " + f.day(began)
		if !seen {
			r.Since = "since before " + f.day(began)
		}
	}
	d := f.state.Default
	r.Status, r.Notes = judge(e, d)
	r.Age = r.age()
	r.Led = r.Status != noLeader && r.Status != unknown
	if r.Status == unknown && r.Guard.Class == "good" {
		r.Guard.Class, r.Guard.Fence = "", "was in effect"
	}
	r.OffDefault = r.Led && r.Ranked && d.Synced && d.Revision != "" && r.Revision != d.Revision
	if p := e.Process; p.Leading && p.Validity > 0 {
		r.Validity = &validity{
			ID:    fmt.Sprintf("validity-%d-%d", i, f.deadlines[i].UnixMilli()),
			Class: validityClass(p.ValidUntil.Sub(f.at), p.Validity),
			Text:  fmt.Sprintf("valid until %s unless renewed", clock(f.deadlines[i])),
			Whole: durationText(p.Validity),
		}
	}
	f.followers(&r)
	if q.Asks {
		r.If = f.outcome(e, q)
	}
	return r
}

// age returns the age of a lease that may have expired, or who knows the validity.
func (r row) age() string {
	switch {
	case (r.State == inspect.Expired || r.State == inspect.Doubtful) && !r.Renewed.IsZero() && r.Idle > 0:
		return "renewed " + ago(r.Idle)
	case r.Acting() && !r.Mine:
		return "only known to the leader"
	}
	return "–"
}

func guardOf(p *inspect.Process) guard {
	g := guard{Fence: "not tested", Gate: "no gate"}
	if p.Gate != "" {
		g.Gate = "gate " + p.Gate
	}
	switch s := p.Fence; {
	case s == nil:
	case s.Answer == "":
		g.Fence = "not tested yet"
	case s.InEffect:
		g.Class = "good"
		g.Fence = "in effect"
	default:
		g.Class = "broken"
		g.Fence = strings.TrimSpace(string(s.Answer) + " " + s.Detail)
	}
	return g
}

// maxFollowers bounds the followers of a row, because any writer of Leases can add candidates, and each frame has all rows.
const maxFollowers = 100

// followers adds the first candidates other than the holder, and the witness of the holder.
func (f *frame) followers(r *row) {
	all, ready := 0, 0
	for _, c := range r.Candidates {
		if c.Identity == r.Holder {
			r.Witness = c.Witness
			continue
		}
		ready += count(c.Readiness() == inspect.Ready)
		if all++; all <= maxFollowers {
			r.Followers = append(r.Followers, follower{Candidate: c, Chip: f.history.chip(c.Key)})
		}
	}
	switch {
	case r.Candidates == nil:
		r.Summary = "unknown"
	case all == 0:
		r.Summary = "none"
	case ready == all:
		r.Summary = fmt.Sprintf("%d ready", all)
	default:
		r.Summary = fmt.Sprintf("%d of %d ready", ready, all)
	}
	if all > maxFollowers {
		r.Summary += fmt.Sprintf("; the first %d", maxFollowers)
	}
}

// outcome predicts the outcome of the default revision of the query.
func (f *frame) outcome(e inspect.Election, q query) *outcome {
	o := e.If(k8sleaderelection.DefaultRevision{Revision: q.Default, Synced: true})
	return &outcome{Outcome: o, Chip: f.history.chip(o.Revision), Moves: o.Move != inspect.Stays && o.Move != inspect.Unknown}
}

// sum returns a summary of the outcomes.
func sum(rows []row) string {
	moving, unknown := 0, 0
	for _, r := range rows {
		if r.If != nil {
			moving += count(r.If.Moves)
			unknown += count(r.If.Move == inspect.Unknown)
		}
	}
	text := fmt.Sprintf("%d of %d elections would change leaders", moving, len(rows))
	if unknown > 0 {
		text += fmt.Sprintf(", %d unknown", unknown)
	}
	return text
}

// day returns a time, with the date if it differs from the date of the frame.
func (f *frame) day(t time.Time) string {
	if t, at := t.UTC(), f.at.UTC(); t.YearDay() == at.YearDay() && t.Year() == at.Year() {
		return clock(t)
	}
	return t.UTC().Format("Jan 2 15:04")
}

func ago(d time.Duration) string {
	if minutes := d.Minutes(); minutes > 2 && minutes < 10 && d%time.Minute != 0 {
		return fmt.Sprintf("%.1f min ago", minutes)
	}
	return durationText(d) + " ago"
}

// mostRendered is the maximum number of cached views.
const mostRendered = 16

// main returns <main> of the frame for a query.
func (f *frame) main(q query) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if body, ok := f.rendered[q]; ok {
		return body, nil
	}
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, "main", f.view(q)); err != nil {
		return nil, err
	}
	if len(f.rendered) < mostRendered {
		f.rendered[q] = b.Bytes()
	}
	return b.Bytes(), nil
}

// page returns the whole document.
func (f *frame) page(q query) ([]byte, error) {
	var b bytes.Buffer
	err := templates.ExecuteTemplate(&b, "page", f.view(q))
	return b.Bytes(), err
}
