package page

import (
	"bytes"
	_ "embed" // for the assets
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"time"
)

var (
	//go:embed assets/page.css
	pageCSS string
	//go:embed assets/page.js
	pageJS string
	// idiomorph 0.8.0, https://github.com/bigskysoftware/idiomorph, Zero-Clause BSD: see
	// assets/idiomorph.LICENSE.
	//go:embed assets/idiomorph.min.js
	idiomorphJS string
	//go:embed assets/page.html
	pageHTML string
	//go:embed assets/icon.svg
	iconSVG string
)

var templates = template.Must(template.New("page").Funcs(template.FuncMap{
	"clock": clock, "glyph": glyph, "percent": percent, "short": short,
	"interval": idle.Seconds,
	"moment":   func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
}).Parse(pageHTML))

// glyphs distinguish revisions without colours. The first means no revision.
var glyphs = []string{"○", "●", "■", "▲", "◆", "★", "✚"}

// signs is the number of distinct colours and glyphs.
const signs = 6

func glyph(sign int) string { return glyphs[sign] }

func percent(hundredths float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", hundredths), "0"), ".") + "%"
}

// short returns a text whose words have at most most characters. It replaces the middle of longer words, because names differ at
// their ends.
func short(most int, text string) string {
	words := strings.Split(text, " ")
	for i, word := range words {
		if runes := []rune(word); len(runes) > most {
			end := most / 3
			words[i] = string(runes[:most-1-end]) + "…" + string(runes[len(runes)-end:])
		}
	}
	return strings.Join(words, " ")
}

// asset is one embedded file.
type asset struct{ name, kind, content string }

func assets() []asset {
	return []asset{
		{"page.css", "text/css; charset=utf-8", pageCSS + validityCSS()},
		{"page.js", "text/javascript; charset=utf-8", pageJS},
		{"idiomorph.js", "text/javascript; charset=utf-8", idiomorphJS},
		{"icon.svg", "image/svg+xml", iconSVG},
	}
}

func (a asset) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Type", a.kind)
	http.ServeContent(w, req, a.name, time.Time{}, bytes.NewReader([]byte(a.content)))
}

// longestValidity is the longest validity in seconds with its own class. Bars of a longer validity use this class.
const longestValidity = 120

// validityCSS returns classes for the duration and the elapsed share of a bar. The policy forbids style attributes.
func validityCSS() string {
	var b strings.Builder
	for seconds := 1; seconds <= longestValidity; seconds++ {
		fmt.Fprintf(&b, ".of-%d{--of:%ds}\n", seconds, seconds)
	}
	for hundredth := range 101 {
		fmt.Fprintf(&b, ".over-%d{--over:-%.2f}\n", hundredth, float64(hundredth)/100)
	}
	return b.String()
}

// validityClass returns the classes of a bar.
func validityClass(left, of time.Duration) string {
	over := 1 - min(1, max(0, float64(left)/float64(max(of, 1))))
	seconds := min(longestValidity, max(1, int((of+time.Second/2)/time.Second)))
	return fmt.Sprintf("of-%d over-%d", seconds, int(100*over+0.5))
}
