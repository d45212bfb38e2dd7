package debug

import (
	"bytes"
	_ "embed" // for the page's files
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
	"clock": clock, "glyph": glyph, "percent": percent,
	"moment": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
}).Parse(pageHTML))

// glyphs tell revisions apart for who does not see their colours; the first is no revision's.
var glyphs = []string{"○", "●", "■", "▲", "◆", "★", "✚"}

// signs is how many revisions can be told apart.
const signs = 6

func glyph(sign int) string { return glyphs[sign] }

func percent(hundredths float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", hundredths), "0"), ".") + "%"
}

// asset is one embedded file.
type asset struct{ name, kind, content string }

func assets() []asset {
	return []asset{
		{"page.css", "text/css; charset=utf-8", pageCSS + coverCSS()},
		{"page.js", "text/javascript; charset=utf-8", pageJS},
		{"idiomorph.js", "text/javascript; charset=utf-8", idiomorphJS},
		{"icon.svg", "image/svg+xml", iconSVG},
	}
}

func (a asset) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Type", a.kind)
	http.ServeContent(w, req, a.name, time.Time{}, bytes.NewReader([]byte(a.content)))
}

// longestCover is the longest cover, in seconds, that has a class of its own; longer ones, in
// which a bar hardly moves, run as if they were of this length.
const longestCover = 120

// coverCSS are the classes by which a bar gets its duration and how much of it is over: a
// style attribute would be inline style, which the page's policy forbids.
func coverCSS() string {
	var b strings.Builder
	for seconds := 1; seconds <= longestCover; seconds++ {
		fmt.Fprintf(&b, ".of-%d{--of:%ds}\n", seconds, seconds)
	}
	for hundredth := range 101 {
		fmt.Fprintf(&b, ".over-%d{--over:-%.2f}\n", hundredth, float64(hundredth)/100)
	}
	return b.String()
}

// coverClass is the class of a bar of which left is left.
func coverClass(left, of time.Duration) string {
	over := 1 - min(1, max(0, float64(left)/float64(max(of, 1))))
	seconds := min(longestCover, max(1, int((of+time.Second/2)/time.Second)))
	return fmt.Sprintf("of-%d over-%d", seconds, int(100*over+0.5))
}
