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

// screen prints lines of what happened above a table of how things stand. On a
// terminal the table stays below the newest line; elsewhere it is printed again,
// with the time, whenever it has changed.
type screen struct {
	out io.Writer
	// width of the terminal in columns; 0 when out is none.
	width int

	mu    sync.Mutex
	table []string
	// shown is how many lines of table are on the terminal now.
	shown int
}

// say prints one line of what happened.
func (s *screen) say(at time.Time, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	fmt.Fprintf(s.out, "%s  %s\n", at.Format(stampLayout), fmt.Sprintf(format, args...))
	s.draw()
}

// print writes text as it is.
func (s *screen) print(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	io.WriteString(s.out, text)
	s.draw()
}

// show replaces the table.
func (s *screen) show(at time.Time, table []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.width == 0 {
		fmt.Fprintf(s.out, "\n%s\n%s\n\n", at.Format(stampLayout), strings.Join(table, "\n"))
		return
	}
	s.erase()
	s.table = table
	s.draw()
}

// leave lets the table stand where it is, for output that follows it.
func (s *screen) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table, s.shown = nil, 0
}

func (s *screen) erase() {
	if s.shown > 0 {
		fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", s.shown)
		s.shown = 0
	}
}

func (s *screen) draw() {
	if s.width == 0 || len(s.table) == 0 {
		return
	}
	fmt.Fprintln(s.out)
	for _, line := range s.table {
		fmt.Fprintln(s.out, cut(line, s.width))
	}
	s.shown = len(s.table) + 1
}

// cut keeps a line within the terminal, so that it stays one line.
func cut(line string, width int) string {
	runes := []rune(line)
	if len(runes) < width {
		return line
	}
	return string(runes[:width-1])
}

// columns aligns the cells of rows.
func columns(rows [][]string) []string {
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
			line.WriteString(strings.Repeat(" ", widths[i]-len([]rune(cell))+2))
		}
		lines[r] = strings.TrimRight(line.String(), " ")
	}
	return lines
}
