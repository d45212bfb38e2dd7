package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// fixed is a layout that does not ask for the width.
func fixed(lines ...string) func(int) []string { return func(int) []string { return lines } }

func TestScreenWithoutTerminalPrintsTheTableAgain(t *testing.T) {
	var out strings.Builder
	s := &screen{out: &out}
	s.show(noon, fixed("ELECTION", "a"))
	s.say(noon, "%s leads", "b")
	s.fit()
	s.show(noon, fixed("ELECTION", "b"))
	want := "\n12:00:00.000\nELECTION\na\n\n12:00:00.000  b leads\n\n12:00:00.000\nELECTION\nb\n\n"
	if out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

// terminal is as much of one as the screen uses. One that wraps anew does so when it is resized, as
// tmux does; others cut their lines.
type terminal struct {
	width, height int
	wrapsAnew     bool
	// lines are rows, the history first; a row that was wrapped goes on in the next.
	lines  []row
	x, y   int
	broken string // what it does not know
}

type row struct {
	text    []rune
	wrapped bool
}

func newTerminal(width, height int, wrapsAnew bool) *terminal {
	return &terminal{width: width, height: height, wrapsAnew: wrapsAnew, lines: []row{{}}}
}

func (t *terminal) size() (int, int) { return t.width, t.height }

// top is the index of the first row on the screen.
func (t *terminal) top() int { return max(0, len(t.lines)-t.height) }

func (t *terminal) Write(p []byte) (int, error) {
	text := []rune(string(p))
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\n':
			t.down()
			t.x = 0
		case text[i] == '\x1b':
			end := i + 2
			for !strings.ContainsRune("AHJK", text[end]) {
				end++
			}
			t.control(string(text[i+2:end]), text[end])
			i = end
		default:
			if t.x == t.width {
				t.lines[t.y].wrapped = true
				t.down()
				t.x = 0
			}
			line := &t.lines[t.y]
			for len(line.text) <= t.x {
				line.text = append(line.text, ' ')
			}
			line.text[t.x] = text[i]
			t.x++
		}
	}
	return len(p), nil
}

func (t *terminal) down() {
	t.y++
	if t.y == len(t.lines) {
		t.lines = append(t.lines, row{})
	}
}

func (t *terminal) control(args string, what rune) {
	first, second, _ := strings.Cut(args, ";")
	n, _ := strconv.Atoi(first)
	m, _ := strconv.Atoi(second)
	switch {
	case what == 'A':
		t.y, t.x = max(t.top(), t.y-n), min(t.x, t.width-1)
	case what == 'H':
		t.y, t.x = t.top()+max(1, n)-1, max(1, m)-1
		for t.y >= len(t.lines) {
			t.lines = append(t.lines, row{})
		}
	case what == 'J' && args == "":
		t.lines[t.y].text = t.lines[t.y].text[:min(t.x, len(t.lines[t.y].text))]
		for i := t.y + 1; i < len(t.lines); i++ {
			t.lines[i] = row{}
		}
	case what == 'K' && args == "2":
		t.lines[t.y] = row{}
	default:
		t.broken = args + string(what)
	}
}

// resize changes the size, and what is there as the kind of terminal does.
func (t *terminal) resize(width, height int) {
	if t.wrapsAnew {
		var lines []row
		cursor := 0
		for i := 0; i < len(t.lines); i++ {
			text, has := []rune{}, false
			for ; ; i++ {
				text, has = append(text, t.lines[i].text...), has || i == t.y
				if !t.lines[i].wrapped {
					break
				}
			}
			for len(text) > width {
				lines, text = append(lines, row{text[:width:width], true}), text[width:]
			}
			lines = append(lines, row{text: text})
			if has {
				cursor = len(lines) - 1
			}
		}
		t.lines, t.y = lines, cursor
	} else {
		for i := range t.lines {
			t.lines[i].text = t.lines[i].text[:min(width, len(t.lines[i].text))]
		}
	}
	t.width, t.height, t.x = width, height, min(t.x, width-1)
	t.y = max(t.y, t.top())
}

// shows are the rows on the screen.
func (t *terminal) shows() []string {
	var rows []string
	for _, line := range t.lines[t.top():] {
		rows = append(rows, string(line.text))
	}
	return rows
}

// However often the terminal is resized, it shows the table once, below the newest line.
func TestScreenOnATerminalThatIsResized(t *testing.T) {
	for _, wrapsAnew := range []bool{true, false} {
		t.Run(fmt.Sprintf("wraps anew %v", wrapsAnew), func(t *testing.T) {
			for seed := range uint64(60) {
				random := rand.New(rand.NewPCG(seed, 1))
				tty := newTerminal(80, 24, wrapsAnew)
				s := &screen{out: tty, size: tty.size}
				s.print(strings.Repeat("what to try\n", 30))
				rows := 3
				for step := range 40 {
					table := []string{"ELECTION"}
					for i := range rows {
						table = append(table, fmt.Sprintf("row %d of %d %s", i, rows, strings.Repeat("x", random.IntN(150))))
					}
					switch random.IntN(4) {
					case 0:
						tty.resize(20+random.IntN(120), 6+random.IntN(50))
						s.fit()
					case 1:
						s.say(noon, "news %d %s", step, strings.Repeat("y", random.IntN(120)))
					case 2: // both at once: the change is noticed late
						tty.resize(20+random.IntN(120), 6+random.IntN(50))
						s.say(noon, "news %d", step)
					default:
						rows = 1 + random.IntN(30)
						s.show(noon, fixed(table...))
					}
					if s.layout != nil {
						wantOneTable(t, tty, s, seed, step)
					}
				}
			}
		})
	}
}

func wantOneTable(t *testing.T, tty *terminal, s *screen, seed uint64, step int) {
	t.Helper()
	shown := tty.shows()
	for len(shown) > 0 && shown[len(shown)-1] == "" {
		shown = shown[:len(shown)-1] // the cursor's row, and what is below it
	}
	want := s.lines()
	if tty.broken != "" || len(shown) > tty.height || len(shown) < len(want) || !slices.Equal(shown[len(shown)-len(want):], want) {
		t.Fatalf("seed %d, step %d, %d×%d (unknown %q): shows\n%s\nwant at its end\n%s", seed, step, tty.width, tty.height, tty.broken,
			strings.Join(shown, "\n"), strings.Join(want, "\n"))
	}
	if above := len(shown) - len(want) - 1; above >= 0 && shown[above] == "" {
		t.Fatalf("seed %d, step %d: a row is left above the table:\n%s", seed, step, strings.Join(shown, "\n"))
	}
	if headers := strings.Count(strings.Join(shown, "\n"), "ELECTION"); headers != 1 {
		t.Fatalf("seed %d, step %d: the table is there %d times:\n%s", seed, step, headers, strings.Join(shown, "\n"))
	}
}

func TestScreenOnTerminalKeepsTheTableBelow(t *testing.T) {
	tty := newTerminal(12, 5, false)
	s := &screen{out: tty, size: tty.size}
	s.show(noon, fixed("0123456789abc"))
	s.say(noon, "news")
	if got, want := strings.Join(tty.shows(), "|"), "12:00:00.000|  news||0123456789…|"; got != want {
		t.Errorf("shows %q, want %q", got, want)
	}
	s.show(noon, fixed("1", "2", "3", "4", "5"))
	if got, want := strings.Join(tty.shows(), "|"), "|1|2|… 3 lines more in a taller terminal|"; got[:5] != want[:5] || !strings.Contains(got, "… 3 line") {
		t.Errorf("shows %q, want %q", got, want)
	}
	s.leave()
	s.print("bye\n")
	if rows := tty.shows(); rows[len(rows)-2] != "bye" {
		t.Errorf("after leave it shows %q", rows)
	}
}

func TestColumns(t *testing.T) {
	got := columns([][]string{{"A", "LONG", "Z"}, {"äöü", "", "z"}})
	want := []string{"A    LONG  Z", "äöü        z"}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("columns %q, want %q", got, want)
	}
}

// Nothing is cut in a terminal of 80 columns with names as long as they are.
func TestTableFitsItsTerminal(t *testing.T) {
	const leader = "pilot-stable-6cfd8f489b-spbvd"
	v := view{
		defaultRevision: "stable",
		locks:           map[string]lock{witnessed: {holder: leader, key: "stable", transitions: 12}},
		pods: map[string]pod{
			leader:                          {revision: "stable", ip: "127.191.255.253", ready: true},
			"pilot-canary-5ff8d9b7b6-9dwrn": {revision: "canary", ip: "127.146.96.4", ready: true},
		},
	}
	work := spanOf(leader, 0, alive)
	work.election = witnessed
	for _, width := range []int{80, 100, 200} {
		lines := table(v, []span{work}, []string{witnessed}, width)
		if widest(lines) >= width {
			t.Errorf("%d columns are too few for\n%s", width, strings.Join(lines, "\n"))
		}
		text := strings.Join(lines, "\n")
		for _, word := range []string{witnessed, leader, "WORK", "12:00:00.000", "127.191.255.253:15014", "(default revision: stable)"} {
			if !strings.Contains(text, word) {
				t.Errorf("at %d columns %q is missing in\n%s", width, word, text)
			}
		}
	}
	v.awaySince = at(5)
	text := strings.Join(table(v, []span{work}, []string{witnessed}, 80), "\n")
	if !strings.Contains(text, "has not been ready since 12:00:05.000") || strings.Contains(text, "yes") || strings.Count(text, "unknown") != 2 {
		t.Errorf("without an API server the table is\n%s", text)
	}
}

// All four elections, two of them of each revision for itself, the replicas and the sample have room in a terminal
// of 80 columns and 24 rows.
func TestTableOfAllElectionsFitsASmallTerminal(t *testing.T) {
	stable, canary := "pilot-stable-6cfd8f489b-spbvd", "pilot-canary-5ff8d9b7b6-9dwrn"
	v := view{
		defaultRevision: "stable", locks: map[string]lock{"istio-gateway-status-leader": {holder: "incumbent-successors", key: ""}}, pods: map[string]pod{},
		sampled: sampled{gateway: "127.191.255.253:8080", revision: "stable", pod: "web-istio-6cfd8f489b-spbvd", ingress: "127.191.255.252"},
	}
	var spans []span
	var ours []string
	for name, holder := range map[string]string{
		witnessed: stable, "istio-leader": stable, "istio-gateway-status-leader-stable": stable, "istio-gateway-status-leader-canary": canary,
		"istio-gateway-deployment-stable": stable, "istio-gateway-deployment-canary": canary,
	} {
		v.locks[name] = lock{holder: holder, key: holder[6:12], transitions: 123}
		work := spanOf(holder, 0, alive)
		work.election = name
		spans, ours = append(spans, work), append(ours, name)
	}
	for i, name := range []string{stable, "pilot-stable-6cfd8f489b-7rd2h", canary, "pilot-canary-5ff8d9b7b6-kvzsz"} {
		v.pods[name] = pod{revision: name[6:12], ip: fmt.Sprint("127.191.255.25", i), ready: true}
	}
	tty := newTerminal(80, 24, true)
	s := &screen{out: tty, size: tty.size}
	s.print(strings.Repeat("what to try\n", 30))
	s.show(noon, func(width int) []string { return table(v, spans, ours, width) })
	shown := strings.Join(tty.shows(), "\n")
	if strings.Contains(shown, "…") || !strings.Contains(shown, "what to try") {
		t.Errorf("it is cut, or has no room for what happens:\n%s", shown)
	}
	for name, l := range v.locks {
		if words := strings.Fields(shown[strings.Index(shown, "\n"+name+" ")+1:]); words[0] != name || words[1] != l.holder {
			t.Errorf("there is no row of %s held by %s in\n%s", name, l.holder, shown)
		}
	}
	if n := strings.Count(shown, "12:00:00.000"); n != len(spans) {
		t.Errorf("%d of %d work in\n%s", n, len(spans), shown)
	}
	// Two at once are seen in a small terminal as well.
	spans = append(spans, spanOf(canary, 1, alive))
	spans[len(spans)-1].election = witnessed
	if lines := strings.Join(table(v, spans, ours, 80), "\n"); !strings.Contains(lines, "AND "+canary) {
		t.Errorf("two at once are not told in\n%s", lines)
	}
}
