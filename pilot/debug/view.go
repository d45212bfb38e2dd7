package debug

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"time"

	"incumbent.dev/incumbent/internal/inspect"
)

// view is what the template shows, all in words and numbers: a template decides nothing.
type view struct {
	Query   query
	Process chip
	State   State
	// Default is the default revision; Known is false until it was read.
	Default        chip
	Known          bool
	Here, Orphaned int
	Ranges, Ifs    []choice
	Close          string
	If             string
	Rows           []row
	From, Mid      string
	Observed       string
	Events         []event
}

// chip is a revision with its colour and sign.
type chip struct {
	Sign     int
	Revision string
	Remote   bool
}

// choice is a link, or what was chosen.
type choice struct {
	Chip   chip
	Text   string
	Link   string
	Chosen bool
}

// row is one election.
type row struct {
	Election
	// Anchor is the row's id, by which morphing knows it again.
	Anchor   string
	Revision chip
	Mine     bool
	// HolderState is a word on the holder, when it does not simply lead.
	HolderState string
	// Since is when the term began. Here and in covers it is an instant, which stays as it is while time passes: of
	// hundreds of elections only those that change are sent for drawing.
	Since     string
	Cover     *cover
	Followers []follower
	Summary   string
	If        *outcome
	Bars      []bar
	Marks     []mark
}

// cover is the bar of what is left before the leader has to write again.
type cover struct{ ID, Class, Text, Whole string }

type follower struct {
	inspect.Candidate
	Revision chip
	State    string
}

type outcome struct {
	inspect.Outcome
	Chip  chip
	Moves bool
}

func revisionOf(key string) (revision string, remote bool) {
	revision, remote = strings.CutPrefix(key, "^")
	return revision, remote
}

func (h history) chip(key string) chip {
	revision, remote := revisionOf(key)
	return chip{Sign: h.sign(revision), Revision: revision, Remote: remote}
}

// view puts together what a reader gets to see of the frame.
func (f *frame) view(q query) view {
	span := q.span(f)
	v := view{
		Query: q, State: f.state, Process: f.history.chip(f.state.Revision),
		Default: f.history.chip(f.state.Default.Revision), Known: f.state.Default.Synced,
		From: ago(span.to.Sub(span.from)), Mid: ago(span.to.Sub(span.from) / 2),
		Observed: durationText(f.at.Sub(f.history.begin(f.at))), Events: span.events(f.history.of),
		Close: q.asking(false, "").link(),
	}
	for _, r := range ranges {
		v.Ranges = append(v.Ranges, choice{Text: r.text, Link: q.within(r.name).link(), Chosen: q.Range == r.name})
	}
	for _, revision := range f.history.revisions {
		if !revisionForm.MatchString(revision) {
			continue // no label can have that value, so no webhook can name it as the default
		}
		v.Ifs = append(v.Ifs, choice{Chip: f.history.chip(revision), Text: revision, Link: q.asking(true, revision).link(), Chosen: q.Asks && q.Default == revision})
	}
	v.Ifs = append(v.Ifs, choice{Text: "none", Link: q.asking(true, "").link(), Chosen: q.Asks && q.Default == ""})
	for i, e := range f.state.Elections {
		r := f.row(i, e, q, span)
		v.Rows = append(v.Rows, r)
		v.Here += count(e.Leading)
		v.Orphaned += count(e.Leader == "" || !e.Acting)
	}
	v.If = v.sum()
	return v
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func (f *frame) row(i int, e Election, q query, span span) row {
	changes := f.history.of[e.name()]
	r := row{
		Election: e, Anchor: "e-" + strings.Join([]string{e.Cluster, e.Namespace, e.Kind, e.Lock}, "."),
		Revision: f.history.chip(e.Key), Mine: e.Leader != "" && e.Leader == f.state.Identity,
		Bars: span.bars(changes, f.history.sign), Marks: span.marks(changes),
	}
	if began, seen := termBegan(changes); !began.IsZero() {
		r.Since = "since " + f.day(began)
		if !seen {
			r.Since = "since before " + f.day(began)
		}
	}
	switch {
	case e.Leader == "":
		r.HolderState = "nobody leads"
	case !e.Acting && r.Mine:
		r.HolderState = e.Phase
	case !e.Acting:
		r.HolderState = "does not act"
	}
	if e.Leading && e.Cover > 0 {
		r.Cover = &cover{
			ID:    fmt.Sprintf("cover-%d-%d", i, f.deadlines[i].UnixMilli()),
			Class: coverClass(e.CoverLeft, e.Cover),
			Text:  fmt.Sprintf("until %s, unless it is renewed", clock(f.deadlines[i])),
			Whole: durationText(e.Cover),
		}
	}
	f.followers(&r)
	if q.Asks {
		r.If = f.outcome(e, q)
	}
	return r
}

// followers are the candidates but for the holder.
func (f *frame) followers(r *row) {
	warm := 0
	for _, c := range r.Candidates {
		if c.Identity == r.Leader {
			continue
		}
		warm += count(c.Warm && c.Fit && !c.Late)
		r.Followers = append(r.Followers, follower{Candidate: c, Revision: f.history.chip(c.Key), State: stateOf(c)})
	}
	switch {
	case r.Candidates == nil:
		r.Summary = "unknown"
	case len(r.Followers) == 0:
		r.Summary = "none"
	default:
		r.Summary = fmt.Sprintf("%d, %d ready", len(r.Followers), warm)
	}
}

func stateOf(c inspect.Candidate) string {
	switch {
	case c.Late:
		return "silent"
	case !c.Fit:
		return "unfit"
	case !c.Warm:
		return "not warm"
	}
	return "ready"
}

func (f *frame) outcome(e Election, q query) *outcome {
	o := e.ifDefault(q.revision())
	return &outcome{Outcome: o, Chip: f.history.chip(o.Revision), Moves: o.Move != inspect.Stays && o.Move != inspect.Unknown}
}

// sum counts the outcomes.
func (v view) sum() string {
	moving, unknown := 0, 0
	for _, r := range v.Rows {
		if r.If != nil {
			moving += count(r.If.Moves)
			unknown += count(r.If.Move == inspect.Unknown)
		}
	}
	text := fmt.Sprintf("%d of %d elections would move", moving, len(v.Rows))
	if unknown > 0 {
		text += fmt.Sprintf(", of %d it cannot be told", unknown)
	}
	return text
}

// day is a clock's time, with the date where that is another than the frame's.
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

// rendered is what was made of a frame already, so that a hundred open pages cost one.
type rendered struct {
	mu  sync.Mutex
	all map[query][]byte
}

// mostRendered bounds how many views of one frame are kept.
const mostRendered = 16

// main is the frame's <main> for a query.
func (f *frame) main(q query) ([]byte, error) {
	f.rendered.mu.Lock()
	defer f.rendered.mu.Unlock()
	if body, ok := f.rendered.all[q]; ok {
		return body, nil
	}
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, "main", f.view(q)); err != nil {
		return nil, err
	}
	if f.rendered.all == nil {
		f.rendered.all = map[query][]byte{}
	}
	if len(f.rendered.all) < mostRendered {
		f.rendered.all[q] = b.Bytes()
	}
	return b.Bytes(), nil
}

// page is the whole document.
func (f *frame) page(q query) ([]byte, error) {
	var b bytes.Buffer
	err := templates.ExecuteTemplate(&b, "page", f.view(q))
	return b.Bytes(), err
}
