package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// stampLayout is how times are shown.
const stampLayout = "15:04:05.000"

// historyLines is how much of what was printed is kept for a terminal that is resized.
const historyLines = 500

// screen prints lines of what happened above a table of how things stand. On a
// terminal the table stays below the newest line; elsewhere it is printed again,
// with the time, whenever it has changed.
type screen struct {
	out io.Writer
	// size is the terminal's present one in columns and rows; nil when out is none.
	size func() (width, height int)

	mu sync.Mutex
	// layout makes the table for a terminal of that width; nil: there is no table now.
	layout func(width int) []string
	// shown is how many rows of table are on the terminal now, which was so large then.
	shown, width, height int
	history              []string
}

// say prints one line of what happened.
func (s *screen) say(at time.Time, format string, args ...any) {
	s.print(fmt.Sprintf("%s  %s\n", at.Format(stampLayout), fmt.Sprintf(format, args...)))
}

// print writes text, of whole lines, as it is.
func (s *screen) print(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remember(text)
	if s.resized() {
		s.repaint()
		return
	}
	s.erase()
	io.WriteString(s.out, text)
	s.draw()
}

// show replaces the table.
func (s *screen) show(at time.Time, layout func(width int) []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.size == nil {
		fmt.Fprintf(s.out, "\n%s\n%s\n\n", at.Format(stampLayout), strings.Join(layout(0), "\n"))
		return
	}
	s.layout = layout
	if s.resized() {
		s.repaint()
		return
	}
	s.erase()
	s.draw()
}

// fit paints the screen anew if the terminal was resized. To be called every now and then.
func (s *screen) fit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resized() {
		s.repaint()
	}
}

// leave lets the table stand where it is, for output that follows it.
func (s *screen) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.layout, s.shown = nil, 0
}

// resized reports whether a table is on a terminal that has another size now.
func (s *screen) resized() bool {
	if s.size == nil || s.shown == 0 {
		return false
	}
	width, height := s.size()
	return width != s.width || height != s.height
}

func (s *screen) remember(text string) {
	if s.size == nil {
		return
	}
	s.history = append(s.history, strings.Split(strings.TrimSuffix(text, "\n"), "\n")...)
	s.history = s.history[max(0, len(s.history)-historyLines):]
}

func (s *screen) erase() {
	if s.shown > 0 {
		fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", s.shown)
		s.shown = 0
	}
}

func (s *screen) draw() {
	if s.size == nil || s.layout == nil {
		return
	}
	s.width, s.height = s.size()
	lines := s.lines()
	for _, line := range lines {
		fmt.Fprintln(s.out, line)
	}
	s.shown = len(lines)
}

// lines are those of the table, as the terminal has room for them: what is wider would wrap and
// what is taller would scroll, and neither could be erased again.
func (s *screen) lines() []string {
	lines := append([]string{""}, s.layout(s.width)...)
	if room := max(2, s.height-1); len(lines) > room {
		more := len(lines) - room + 1
		lines = append(lines[:room-1:room-1], fmt.Sprintf("… %d lines more in a taller terminal", more))
	}
	for i, line := range lines {
		lines[i] = cut(line, s.width)
	}
	return lines
}

// repaint writes the whole screen anew. After a change of size nobody knows which row is where:
// some terminals wrap anew what was printed, others cut it. Row by row, because a
// screen that is cleared at once goes into the history of some.
func (s *screen) repaint() {
	s.width, s.height = s.size()
	table := s.lines()
	rows := s.height - 1 - len(table)
	first := len(s.history)
	for first > 0 {
		need := 1 + max(0, len([]rune(s.history[first-1]))-1)/max(1, s.width)
		if need > rows {
			break
		}
		rows -= need
		first--
	}
	var all strings.Builder
	for row := range s.height {
		fmt.Fprintf(&all, "\x1b[%d;1H\x1b[2K", row+1)
	}
	all.WriteString("\x1b[H")
	for _, line := range append(append([]string{}, s.history[first:]...), table...) {
		all.WriteString(line)
		all.WriteByte('\n')
	}
	io.WriteString(s.out, all.String())
	s.shown = len(table)
}

// cut keeps a line within the terminal, so that it stays one line.
func cut(line string, width int) string {
	runes := []rune(line)
	if len(runes) < width || width < 2 {
		return line
	}
	return string(runes[:width-2]) + "…"
}

// gap is what lies between columns, if there is room.
const gap = 2

// columns aligns the cells of rows.
func columns(rows [][]string) []string { return align(rows, gap) }

func align(rows [][]string, gap int) []string {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	lines := make([]string, len(rows))
	for r, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			line.WriteString(strings.Repeat(" ", widths[i]-len([]rune(cell))+gap))
		}
		lines[r] = strings.TrimRight(line.String(), " ")
	}
	return lines
}

// fitted aligns rows for a terminal of that width, 0 for any: closer together where that is
// enough, and otherwise with the first column on a line of its own.
func fitted(rows [][]string, width int) []string {
	for space := gap; space > 0; space-- {
		if lines := align(rows, space); width == 0 || widest(lines) < width {
			return lines
		}
	}
	var rest [][]string
	for _, row := range rows {
		rest = append(rest, row[1:])
	}
	var lines []string
	for i, line := range align(rest, 1) {
		lines = append(lines, rows[i][0], "  "+line)
	}
	return lines
}

// columns is how wide the terminal is, 0 without one.
func (s *screen) columns() int {
	if s.size == nil {
		return 0
	}
	width, _ := s.size()
	return width
}

// fits reports whether rows need no second line in a terminal of that width.
func fits(rows [][]string, width int) bool { return width == 0 || widest(align(rows, 1)) < width }

func widest(lines []string) int {
	most := 0
	for _, line := range lines {
		most = max(most, len([]rune(line)))
	}
	return most
}
