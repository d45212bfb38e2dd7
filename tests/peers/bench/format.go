package main

import (
	"fmt"
	"math"
	"strings"
)

// millis formats milliseconds with three significant digits.
func millis(ms float64) string {
	switch {
	case ms == 0:
		return "0"
	case math.Abs(ms) < 1:
		return digits(ms*1000) + " µs"
	case math.Abs(ms) < 1000:
		return digits(ms) + " ms"
	}
	return digits(ms/1000) + " s"
}

func digits(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// ratio formats value/ours.
func ratio(value, ours float64) string {
	if ours <= 0 {
		return "–"
	}
	return digits(value/ours) + "×"
}

// grid is a Markdown table.
type grid struct {
	b     strings.Builder
	right int // the first column that is right-aligned
}

func newGrid(right int, head ...string) *grid {
	g := &grid{right: right}
	g.row(head...)
	rule := make([]string, len(head))
	for i := range rule {
		rule[i] = "---"
		if i >= right {
			rule[i] = "---:"
		}
	}
	g.row(rule...)
	return g
}

func (g *grid) row(cells ...string) {
	g.b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

func (g *grid) String() string { return g.b.String() }
