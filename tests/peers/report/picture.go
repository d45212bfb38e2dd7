package report

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// Sizes of the picture, in its own units.
const (
	pictureWidth = 940
	labelWidth   = 250
	valueWidth   = 180
	rowHeight    = 26
	headHeight   = 34
	axisHeight   = 46
	topHeight    = 52
	maxDots      = 120
)

// pictureStyle has colors for light surroundings, and others for dark ones. Plain values,
// because not everything that draws SVG knows variables.
const pictureStyle = `
  text { font-family: system-ui, sans-serif; font-size: 13px; fill: #1f2328; }
  .title { font-size: 17px; font-weight: 600; } .head { font-weight: 600; }
  .axis { font-size: 12px; fill: #59636e; } .paper { fill: #ffffff; }
  .grid { stroke: #d1d9e0; stroke-width: 1; } .median { stroke: #1f2328; stroke-width: 2.5; }
  .incumbent { fill: #0969da; stroke: #0969da; } .istio { fill: #bc4c00; stroke: #bc4c00; }
  .client-go { fill: #1a7f37; stroke: #1a7f37; } .limit { fill: #6e7781; stroke: #6e7781; }
  .reach { stroke-width: 1.5; opacity: 0.7; } circle { stroke: none; opacity: 0.35; }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc; } .axis { fill: #9198a1; } .paper { fill: #0d1117; }
    .grid { stroke: #3d444d; } .median { stroke: #f0f6fc; }
    .incumbent { fill: #58a6ff; stroke: #58a6ff; } .istio { fill: #f0883e; stroke: #f0883e; }
    .client-go { fill: #3fb950; stroke: #3fb950; } .limit { fill: #9198a1; stroke: #9198a1; }
    circle { stroke: none; }
  }
`

// panel is one group of rows with its own head.
type panel struct {
	head string
	rows []Series
}

// panels are what the picture shows.
func (r *Results) panels() []panel {
	var panels []panel
	add := func(head, scenario, part string) {
		s := r.Scenarios[scenario]
		if s == nil {
			return
		}
		p := panel{head: head}
		for _, x := range s.Series {
			if x.Part == part && len(x.Millis) > 0 {
				p.rows = append(p.rows, x)
			}
		}
		if len(p.rows) > 0 {
			panels = append(panels, p)
		}
	}
	add("Graceful handover: from the end of the old leader's work to the start of the new one's", Graceful, "")
	add("The default revision moves: from the change to the start of the new leader's work", Steal, "")
	add("The leader is cut off, connections refused: from the cut to the start of the new leader's work", Crash, Refused)
	add("The leader is cut off, packets swallowed: from the cut to the start of the new leader's work", Crash, Swallowed)
	return panels
}

// Picture draws how the times are distributed, as SVG: a dot per time (of many, a
// sample by rank), a line from the least to the largest, and a mark at the median.
func (r *Results) Picture() string {
	panels := r.panels()
	height := topHeight
	for _, p := range panels {
		height += headHeight + len(p.rows)*rowHeight + axisHeight
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title desc">`+"\n", pictureWidth, height)
	fmt.Fprintf(&b, "<!-- of results %s -->\n", r.Sum())
	b.WriteString("<title id=\"title\">How long nobody leads</title>\n")
	b.WriteString("<desc id=\"desc\">Distributions of the times of docs/benchmarks.md on a logarithmic scale, one row for each elector and timing.</desc>\n")
	fmt.Fprintf(&b, "<style>%s</style>\n<rect class=\"paper\" width=\"%d\" height=\"%d\"/>\n", pictureStyle, pictureWidth, height)
	fmt.Fprintf(&b, "<text class=\"title\" x=\"16\" y=\"30\">How long until the next leader works (log scale; mark: median)</text>\n")
	y := topHeight
	for _, p := range panels {
		y = newAxis(p).panel(&b, p, y)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// axis is a panel's logarithmic scale, in decades of milliseconds.
type axis struct{ from, to float64 }

func newAxis(p panel) axis {
	a := axis{from: math.Inf(1), to: math.Inf(-1)}
	for _, row := range p.rows {
		d := SpreadOf(row.Millis)
		a.from = min(a.from, math.Floor(math.Log10(max(d.Min, 0.01))))
		a.to = max(a.to, math.Ceil(math.Log10(max(d.Max, 0.02))))
	}
	a.to = max(a.to, a.from+1)
	return a
}

// ticks are the decades, and what lies between them where there is room.
func (a axis) ticks() []float64 {
	between := []float64{1}
	if a.to-a.from <= 2 {
		between = []float64{1, 2, 3, 5}
	}
	var ticks []float64
	for decade := a.from; decade < a.to; decade++ {
		for _, n := range between {
			ticks = append(ticks, n*math.Pow(10, decade))
		}
	}
	return append(ticks, math.Pow(10, a.to))
}

func (a axis) at(ms float64) float64 {
	share := (math.Log10(max(ms, 0.01)) - a.from) / (a.to - a.from)
	return labelWidth + min(max(share, 0), 1)*(pictureWidth-labelWidth-valueWidth)
}

// panel draws one and returns where the next begins.
func (a axis) panel(b *strings.Builder, p panel, y int) int {
	fmt.Fprintf(b, "<text class=\"head\" x=\"16\" y=\"%d\">%s</text>\n", y+18, html.EscapeString(p.head))
	top := y + headHeight
	bottom := top + len(p.rows)*rowHeight
	for _, ms := range a.ticks() {
		x := a.at(ms)
		fmt.Fprintf(b, "<line class=\"grid\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>", x, top-4, x, bottom)
		fmt.Fprintf(b, "<text class=\"axis\" text-anchor=\"middle\" x=\"%.1f\" y=\"%d\">%s</text>\n", x, bottom+16, tick(ms))
	}
	fmt.Fprintf(b, "<text class=\"axis\" text-anchor=\"middle\" x=\"%d\" y=\"%d\">time, log scale</text>\n",
		(labelWidth+pictureWidth-valueWidth)/2, bottom+32)
	for i, row := range p.rows {
		a.row(b, row, top+i*rowHeight+rowHeight/2)
	}
	return bottom + axisHeight
}

// tick names a time on the axis.
func tick(ms float64) string {
	switch {
	case ms >= 1000:
		return fmt.Sprintf("%g s", ms/1000)
	case ms < 1:
		return fmt.Sprintf("%g µs", ms*1000)
	default:
		return fmt.Sprintf("%g ms", ms)
	}
}

func (a axis) row(b *strings.Builder, row Series, y int) {
	class, d := strings.ToLower(row.Library), SpreadOf(row.Millis)
	name := row.Library
	for _, more := range []string{row.Case, row.Timing} {
		if more != "" {
			name += ", " + more
		}
	}
	fmt.Fprintf(b, "<text x=\"16\" y=\"%d\">%s</text>\n", y+5, html.EscapeString(shorten(name)))
	fmt.Fprintf(b, "<line class=\"reach %s\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>\n", class, a.at(d.Min), y, a.at(d.Max), y)
	sorted := slices.Sorted(slices.Values(row.Millis))
	n := min(len(sorted), maxDots)
	fmt.Fprintf(b, "<g class=\"%s\">", class)
	for i := range n {
		ms := sorted[i*(len(sorted)-1)/max(n-1, 1)]
		fmt.Fprintf(b, "<circle cx=\"%.1f\" cy=\"%d\" r=\"3\"/>", a.at(ms), y+(i*5)%9-4)
	}
	fmt.Fprintf(b, "</g>\n<line class=\"median\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>", a.at(d.Median), y-9, a.at(d.Median), y+9)
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\">%s, p99 %s</text>\n", pictureWidth-valueWidth+12, y+5, millis(d.Median), millis(d.P99))
}

// shorten keeps a label inside its column.
func shorten(name string) string {
	const most = 37
	if runes := []rune(name); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return name
}
