package debug

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestGoldenPages(t *testing.T) {
	flip := newHistory(512)
	before := sample()
	before.Elections[0].Leader, before.Elections[0].Key, before.Elections[0].Acting = "b", "canary", false
	flip.observe(after(0), before)
	before.Elections[0].Acting = true
	flip.observe(after(2), before)
	before.Elections[0].Leader, before.Elections[0].Key = "", ""
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
			if err != nil {
				t.Fatal(err)
			}
			body, err := c.f.page(q)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".html", body)
			if strings.Contains(string(body), "<script>") || strings.Contains(string(body), "style=") || strings.Contains(string(body), "ZgotmplZ") {
				t.Error("markup of others, inline style, or what the template engine refused, is in the page")
			}
		})
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; look at it with: go test ./pilot/debug -rewrite; git diff. Now:\n%s", file, got)
	}
}

func TestQueries(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "?",
		"range=5m":                           "?",
		"range=1h":                           "?range=1h",
		"default=":                           "?default=",
		"default=canary":                     "?default=canary",
		"range=7m":                           "give 5m, 1h or all",
		"default=%3Cb%3E":                    "is no name of a revision",
		"default=" + strings.Repeat("a", 64): "is no name of a revision",
	} {
		values, err := url.ParseQuery(text)
		if err != nil {
			t.Fatal(err)
		}
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

func TestHistoryKeepsChangesAlone(t *testing.T) {
	h, s := newHistory(3), sample()
	n := s.Elections[0].name()
	for i := range 5 {
		h.observe(after(i), s)
	}
	if got := h.of[n]; len(got) != 1 || !got[0].At.Equal(start) {
		t.Errorf("nothing changed, and there are %v", got)
	}
	shared := h.picture()
	for i := range 5 {
		s.Elections[0].Transitions = 10 + i
		h.observe(after(10+i), s)
	}
	if got := h.of[n]; len(got) != 3 || got[2].Transitions != 14 {
		t.Errorf("of the newest three there are %v", got)
	}
	if got := shared.of[n]; len(got) != 1 || got[0].Transitions != 3 {
		t.Errorf("a picture has changed: %v", got)
	}
	s.Elections = s.Elections[1:]
	if h.observe(after(20), s); h.of[n] != nil {
		t.Error("an election that is gone is remembered")
	}
}

func TestHistoryBeforeTheFirstLook(t *testing.T) {
	h, s := newHistory(3), sample()
	n := s.Elections[0].name()
	h.observe(after(100), s)
	h.before(n, []Change{{At: after(50), Leader: "y"}, {At: after(20), Leader: "x", Key: "old"}, {At: after(10), Leader: "w"}, {At: after(200), Leader: "z"}})
	var got []string
	for _, c := range h.of[n] {
		got = append(got, c.Leader)
	}
	if fmt.Sprint(got) != "[x y a]" {
		t.Errorf("%v, want x y a: sorted, bounded, and nothing from after the first look", got)
	}
	if !slices.Contains(h.revisions, "old") || !h.begin(after(300)).Equal(after(20)) {
		t.Error("the past's revision or begin is missing")
	}
}

func TestRevisionsKeepTheirSigns(t *testing.T) {
	h := newHistory(3)
	for i := range 2 * mostRevisions {
		h.meet(fmt.Sprint("r", i))
	}
	if len(h.revisions) != mostRevisions {
		t.Errorf("%d revisions are remembered", len(h.revisions))
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
		"50.0+10.0 pending true b (canary, remote) held it without acting, 03:04:55, for 10 s",
		"80.0+0.4 gap false nobody held it, 03:05:25, for 1 ms",
	}
	if !slices.Equal(got, want) {
		t.Errorf("bars\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	got = nil
	for _, m := range s.marks(changes) {
		got = append(got, fmt.Sprintf("%.1f %s", m.X, m.Title))
	}
	want = []string{
		"50.0 03:04:55 passed from a (stable) to b (canary, remote)",
		"80.0 03:05:25 a (stable) took it",
	}
	if !slices.Equal(got, want) {
		t.Errorf("marks\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	day := span{from: after(-86400), to: after(100)}
	if m := day.marks(changes); len(m) != 1 || m[0].Of != 3 || m[0].Title != "3 changes, the last: 03:05:25 a (stable) took it" {
		t.Errorf("a day has the marks %v", m)
	}
	events := s.events(map[name][]Change{{lock: "e"}: changes})
	if len(events) != 3 || !strings.Contains(events[2].What, "passed from a (stable) to b (canary, remote); nobody acted for 10 s") {
		t.Errorf("events: %v", events)
	}
}

func TestTermsBegin(t *testing.T) {
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
		"never observed":  {nil, time.Time{}, false},
		"went on":         {seen[:1], after(0), false},
		"began":           {seen, after(10), true},
		"nobody":          {free, after(30), true},
		"renewed by name": {append(slices.Clone(seen), Change{At: after(50), Leader: "b", Transitions: 3}), after(50), true},
	} {
		if at, seen := termBegan(c.changes); !at.Equal(c.at) || seen != c.seen {
			t.Errorf("%s: %v, %v", name, at, seen)
		}
	}
}

// A key of another's can be anything. What no label can be is no default, so nobody is asked what if it were.
func TestLinksLeadSomewhere(t *testing.T) {
	s := sample()
	s.Elections[0].Key = "no revision!"
	f := frameOf(after(0), s, newHistory(8))
	for _, c := range f.view(query{Range: "5m"}).Ifs {
		values, err := url.ParseQuery(strings.TrimPrefix(c.Link, "?"))
		if _, wrong := parse(values); err != nil || wrong != nil {
			t.Errorf("the link %q leads to %v, %v", c.Link, err, wrong)
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
		t.Errorf("the timeline's middle is %q, a minute is %q", half, one)
	}
	f := frame{at: time.Date(2026, 1, 1, 0, 30, 0, 0, time.UTC)}
	for back, want := range map[time.Duration]string{20 * time.Minute: "00:10:00", time.Hour: "Dec 31 23:30", 365 * 24 * time.Hour: "Jan 1 00:30"} {
		if got := f.day(f.at.Add(-back)); got != want {
			t.Errorf("%v ago is %q, want %q", back, got, want)
		}
	}
	for left, want := range map[time.Duration]string{15 * time.Second: "of-15 over-0", 3 * time.Second: "of-15 over-80", -1: "of-15 over-100", time.Hour: "of-15 over-0"} {
		if got := coverClass(left, 15*time.Second); got != want {
			t.Errorf("%v of 15 s: %s, want %s", left, got, want)
		}
	}
	if got := coverClass(time.Hour, time.Hour); got != "of-120 over-0" {
		t.Errorf("an hour: %s", got)
	}
}
