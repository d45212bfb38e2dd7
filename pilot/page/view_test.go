package page

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/testutil/golden"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

func TestPage_Golden(t *testing.T) {
	flip := newHistory(512)
	before := sample()
	before.Elections[0].Holder, before.Elections[0].Key, before.Elections[0].Process.Acting = "b", "canary", false
	flip.observe(after(0), before)
	before.Elections[0].Process.Acting = true
	flip.observe(after(2), before)
	before.Elections[0].Holder, before.Elections[0].Key = "", ""
	flip.observe(after(100), before)

	unknown := sample()
	unknown.Default.Synced = false
	unknown.Elections = nil
	frames := map[string]struct {
		f     *frame
		query string
	}{
		"sample":  {frameOf(after(110), sample(), flip), ""},
		"whatif":  {frameOf(after(0), sample(), newHistory(512)), "default=canary&range=1h"},
		"nothing": {frameOf(after(0), unknown, newHistory(512)), "default="},
		"hostile": {frameOf(after(0), hostile(), newHistory(512)), "default=canary"},
	}
	for name, c := range frames {
		t.Run(name, func(t *testing.T) {
			values, _ := url.ParseQuery(c.query)
			q, err := parse(values)
			harness.Must(t, err)
			body, err := c.f.page(q)
			harness.Must(t, err)
			golden.File(t, "testdata/"+name+".html", string(body))
			if strings.Contains(string(body), "<script>") || strings.Contains(string(body), "style=") || strings.Contains(string(body), "ZgotmplZ") {
				t.Error("the page contains unescaped markup, inline style or a rejected value")
			}
		})
	}
}

// A stranger can add candidates, and each frame has all rows.
func TestFollowers_Many(t *testing.T) {
	s := sample()
	s.Elections = s.Elections[:1]
	for n, want := range map[int]string{maxFollowers: "100 ready", 5000: "5000 ready; the first 100"} {
		s.Elections[0].Candidates = nil
		for i := range n {
			s.Elections[0].Candidates = append(s.Elections[0].Candidates, inspect.Candidate{Identity: fmt.Sprint("stranger-", i), Warm: true, Fit: true})
		}
		row := frameOf(after(0), s, newHistory(512)).view(query{}).Groups[0].Rows[0]
		if len(row.Followers) != maxFollowers || row.Summary != want {
			t.Errorf("%d candidates: %d followers, summary %q, want %q", n, len(row.Followers), row.Summary, want)
		}
	}
}

func TestQuery(t *testing.T) {
	for text, want := range map[string]string{
		"":               "?",
		"range=5m":       "?",
		"range=1h":       "?range=1h",
		"default=":       "?default=",
		"default=canary": "?default=canary",
		"state=on+hold&range=1h&revision=x&name=a%26b&default=": "?default=&name=a%26b&range=1h&revision=x&state=on+hold",
		"range=7m":                           "give 5m, 1h or all",
		"default=%3Cb%3E":                    "is not a valid revision",
		"default=" + strings.Repeat("a", 64): "is not a valid revision",
	} {
		values, err := url.ParseQuery(text)
		harness.Must(t, err)
		q, err := parse(values)
		got := q.link()
		if err != nil {
			got = err.Error()
		}
		if !strings.HasSuffix(got, want) && !strings.Contains(got, want+",") && (err == nil || !strings.Contains(got, want)) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestHistory_StoresOnlyChanges(t *testing.T) {
	h, s := newHistory(3), sample()
	n := nameOf(s.Elections[0])
	for i := range 5 {
		h.observe(after(i), s)
	}
	if got := h.of[n]; len(got) != 1 || !got[0].At.Equal(start) {
		t.Errorf("without changes: %v", got)
	}
	shared := h.picture()
	for i := range 5 {
		s.Elections[0].Transitions = 10 + i
		h.observe(after(10+i), s)
	}
	if got := h.of[n]; len(got) != 3 || got[2].Transitions != 14 {
		t.Errorf("the newest three are %v", got)
	}
	if got := shared.of[n]; len(got) != 1 || got[0].Transitions != 3 {
		t.Errorf("a picture changed: %v", got)
	}
	s.Elections = s.Elections[1:]
	if h.observe(after(20), s); h.of[n] != nil {
		t.Error("a removed election is still stored")
	}
}

func TestHistoryBefore(t *testing.T) {
	h, s := newHistory(3), sample()
	n := nameOf(s.Elections[0])
	h.observe(after(100), s)
	h.before(n, []Change{{At: after(50), Leader: "y"}, {At: after(20), Leader: "x", Key: "old"}, {At: after(10), Leader: "w"}, {At: after(200), Leader: "z"}})
	var got []string
	for _, c := range h.of[n] {
		got = append(got, c.Leader)
	}
	if fmt.Sprint(got) != "[x y a]" {
		t.Errorf("%v, want x y a: sorted, bounded, without changes after the first observation", got)
	}
	if !slices.Contains(h.revisions, "old") || !h.begin(after(300)).Equal(after(20)) {
		t.Error("the revision or the begin is missing")
	}
}

func TestRevisionSigns(t *testing.T) {
	h := newHistory(3)
	for i := range 2 * mostRevisions {
		h.meet(fmt.Sprint("r", i))
	}
	if len(h.revisions) != mostRevisions {
		t.Errorf("%d revisions are stored", len(h.revisions))
	}
	for revision, want := range map[string]int{"": 0, "r0": 1, "r5": 6, "r6": 1, "r127": signs} {
		if got := h.sign(revision); got != want {
			t.Errorf("%q has sign %d, want %d", revision, got, want)
		}
	}
}

func TestTimeline(t *testing.T) {
	sign := func(string) int { return 1 }
	changes := []Change{
		{At: after(-50), Leader: "z", Acting: true},
		{At: after(-20), Leader: "a", Key: "stable", Acting: true, Transitions: 1},
		{At: after(50), Leader: "b", Key: "^canary", Transitions: 2},
		{At: after(60), Leader: "b", Key: "^canary", Acting: true, Transitions: 2},
		{At: after(80)},
		{At: after(80).Add(time.Millisecond), Leader: "a", Key: "stable", Acting: true, Transitions: 3},
	}
	s := span{from: after(0), to: after(100)}
	var got []string
	for _, b := range s.bars(changes, sign) {
		got = append(got, fmt.Sprintf("%.1f+%.1f %s %v %s", b.X, b.Width, b.Class, b.Wide, b.Title))
	}
	want := []string{
		"0.0+50.0 acting true a (stable) led, 03:03:45, for 70 s",
		"60.0+20.0 acting true b (canary, remote) led, 03:05:05, for 20 s",
		"80.0+20.0 acting true a (stable) led, since 03:05:25",
		"50.0+10.0 pending true b (canary, remote) held the lock without acting, 03:04:55, for 10 s",
		"80.0+0.4 gap false no holder, 03:05:25, for 1 ms",
	}
	if !slices.Equal(got, want) {
		t.Errorf("bars\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	got = nil
	for _, m := range s.marks(changes) {
		got = append(got, fmt.Sprintf("%.1f %s", m.X, m.Title))
	}
	want = []string{
		"50.0 03:04:55 changed from a (stable) to b (canary, remote)",
		"80.0 03:05:25 a (stable) acquired the lock",
	}
	if !slices.Equal(got, want) {
		t.Errorf("marks\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	day := span{from: after(-86400), to: after(100)}
	if m := day.marks(changes); len(m) != 1 || m[0].Of != 3 || m[0].Title != "3 changes, last: 03:05:25 a (stable) acquired the lock" {
		t.Errorf("marks of a day: %v", m)
	}
	events := s.events(map[name][]Change{{lock: "e"}: changes})
	if len(events) != 3 || !strings.Contains(events[2].What, "changed from a (stable) to b (canary, remote), after 10 s without an acting leader") {
		t.Errorf("events: %v", events)
	}
}

func TestTermBegan(t *testing.T) {
	seen := []Change{
		{At: after(0), Leader: "a", Acting: true, Transitions: 1}, {At: after(10), Leader: "b", Transitions: 2},
		{At: after(12), Leader: "b", Acting: true, Transitions: 2}, {At: after(20), Leader: "b", Transitions: 2},
	}
	free := append(slices.Clone(seen), Change{At: after(30), Transitions: 2}, Change{At: after(40), Transitions: 3})
	for name, c := range map[string]struct {
		changes []Change
		at      time.Time
		seen    bool
	}{
		"never observed":    {nil, time.Time{}, false},
		"began before":      {seen[:1], after(0), false},
		"began":             {seen, after(10), true},
		"no holder":         {free, after(30), true},
		"same holder again": {append(slices.Clone(seen), Change{At: after(50), Leader: "b", Transitions: 3}), after(50), true},
	} {
		if at, seen := termBegan(c.changes); !at.Equal(c.at) || seen != c.seen {
			t.Errorf("%s: %v, %v", name, at, seen)
		}
	}
}

// The page shows the time of the record, as electionctl does, also if it began to observe the election later.
func TestSince_FirstWrite(t *testing.T) {
	s := sample()
	s.Elections[0].State, s.Elections[0].Since = inspect.Leads, after(-60)
	f := frameOf(after(0), s, newHistory(8))
	want := "since " + f.day(after(-60))
	if got := f.row(0, s.Elections[0], query{}, span{}).Since; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestPreviewLinks_ValidRevisions uses a holder key that is not a valid revision, which another elector can write.
func TestPreviewLinks_ValidRevisions(t *testing.T) {
	s := sample()
	s.Elections[0].Key = "no revision!"
	f := frameOf(after(0), s, newHistory(8))
	for _, c := range f.view(query{Range: "5m"}).Ifs {
		values, err := url.ParseQuery(strings.TrimPrefix(c.Link, "?"))
		if _, wrong := parse(values); err != nil || wrong != nil {
			t.Errorf("link %q: %v, %v", c.Link, err, wrong)
		}
	}
}

func TestDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0 s", 20 * time.Millisecond: "20 ms", 1500 * time.Millisecond: "1.5 s", 90 * time.Second: "90 s",
		5 * time.Minute: "5 min", 3 * time.Hour: "3 h", 72 * time.Hour: "3 days",
	} {
		if got := durationText(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
	if half, one := ago(150*time.Second), ago(time.Minute); half != "2.5 min ago" || one != "60 s ago" {
		t.Errorf("2.5 minutes: %q, a minute: %q", half, one)
	}
	f := frame{at: time.Date(2026, 1, 1, 0, 30, 0, 0, time.UTC)}
	for back, want := range map[time.Duration]string{20 * time.Minute: "00:10:00", time.Hour: "Dec 31 23:30", 365 * 24 * time.Hour: "Jan 1 00:30"} {
		if got := f.day(f.at.Add(-back)); got != want {
			t.Errorf("%v ago is %q, want %q", back, got, want)
		}
	}
	for left, want := range map[time.Duration]string{15 * time.Second: "of-15 over-0", 3 * time.Second: "of-15 over-80", -1: "of-15 over-100", time.Hour: "of-15 over-0"} {
		if got := validityClass(left, 15*time.Second); got != want {
			t.Errorf("%v of 15 s: %s, want %s", left, got, want)
		}
	}
	if got := validityClass(time.Hour, time.Hour); got != "of-120 over-0" {
		t.Errorf("an hour: %s", got)
	}
}
