package main

import (
	"fmt"
	"math"
	"slices"
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

// heading returns the head of a Markdown table, in which the columns from right on are right-aligned.
func heading(right int, names ...string) string {
	rules := slices.Concat(slices.Repeat([]string{"---"}, right), slices.Repeat([]string{"---:"}, len(names)-right))
	return line(names...) + line(rules...)
}

// line returns a row of a Markdown table.
func line(cells ...string) string { return "| " + strings.Join(cells, " | ") + " |\n" }
