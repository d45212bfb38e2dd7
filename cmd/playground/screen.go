package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"
)

// screen prints lines, and on a terminal a table below the last line. Elsewhere the table is printed when it changes.
// It is used by one goroutine, except for line.
type screen struct {
	out io.Writer
	// size returns the columns and rows of the terminal. It is nil if out is not a terminal.
	size func() (width, height int)

	table  []string
	drawn  int // rows of the table on the terminal
	width  int // width at that time
	height int
}

func newScreen(out *os.File) *screen {
	s := &screen{out: out}
	if term.IsTerminal(int(out.Fd())) {
		s.size = func() (int, int) {
			width, height, err := term.GetSize(int(out.Fd()))
			if err != nil || width == 0 || height == 0 {
				return 80, 24
			}
			return width, height
		}
	}
	return s
}

// line prints one line with the time.
func (s *screen) line(format string, args ...any) {
	s.print(time.Now().Format("15:04:05.000") + "  " + fmt.Sprintf(format, args...) + "\n")
}

// print prints complete lines above the table.
func (s *screen) print(text string) {
	s.erase()
	io.WriteString(s.out, text)
	s.draw()
}

// show replaces the table.
func (s *screen) show(table []string) {
	changed := strings.Join(table, "\n") != strings.Join(s.table, "\n")
	if s.size == nil {
		s.table = table
		if changed {
			fmt.Fprintf(s.out, "\n%s\n\n", strings.Join(table, "\n"))
		}
		return
	}
	width, height := s.size()
	if !changed && s.drawn > 0 && width == s.width && height == s.height {
		return
	}
	s.erase()
	s.table = table
	s.draw()
}

// leave keeps the table where it is. Further output follows it.
func (s *screen) leave() {
	s.table = nil
	s.drawn = 0
}

func (s *screen) erase() {
	if s.drawn == 0 {
		return
	}
	if width, height := s.size(); width != s.width || height != s.height {
		fmt.Fprint(s.out, "\x1b[2J\x1b[H") // after a resize the position of each row is unknown
	} else {
		fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", s.drawn)
	}
	s.drawn = 0
}

func (s *screen) draw() {
	if s.size == nil || s.table == nil {
		return
	}
	s.width, s.height = s.size()
	lines := append([]string{""}, s.table...)
	if room := max(2, s.height-1); len(lines) > room {
		lines = append(lines[:room-1:room-1], fmt.Sprintf("… %d more lines in a taller terminal", len(lines)-room+1))
	}
	for _, line := range lines {
		if runes := []rune(line); len(runes) >= s.width && s.width > 2 {
			line = string(runes[:s.width-2]) + "…"
		}
		fmt.Fprintln(s.out, line)
	}
	s.drawn = len(lines)
}

// columns aligns the cells of rows. The first row has the most cells.
func columns(rows [][]string) []string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 1, ' ', 0)
	for _, row := range rows {
		// A row with fewer cells would end the columns.
		fmt.Fprintln(table, strings.Join(row, "\t")+strings.Repeat("\t", len(rows[0])-len(row)))
	}
	table.Flush()
	lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return lines
}
