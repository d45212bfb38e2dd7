package lives

import (
	"fmt"
	"testing"
	"time"
)

type candidate struct {
	name string
	*Recorder
}

func (c candidate) Lives() (string, Spans) { return c.name, c.Spans() }

// failed collects the failures of a test.
type failed struct {
	testing.TB
	lines []string
}

func (f *failed) Helper() {}

func (f *failed) Errorf(format string, args ...any) {
	f.lines = append(f.lines, fmt.Sprintf(format, args...))
}

// Overlapping candidates are reported, including spans that have not ended.
func TestApart(t *testing.T) {
	now := time.Now()
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	first := candidate{"first", &Recorder{spans: Spans{{From: at(-9), To: at(-6)}, {From: at(-2)}}}}
	for name, test := range map[string]struct {
		other Span
		fails int
	}{
		"between":                        {Span{From: at(-6), To: at(-2)}, 0},
		"within the first span":          {Span{From: at(-8), To: at(-7)}, 1},
		"across its end":                 {Span{From: at(-7), To: at(-5)}, 1},
		"across its start":               {Span{From: at(-10), To: at(-8)}, 1},
		"over all":                       {Span{From: at(-10)}, 2},
		"concurrent with a running span": {Span{From: at(-1), To: at(0)}, 1},
		"both are running":               {Span{From: at(-1)}, 1},
		"cancelled, but not concurrent":  {Span{From: at(-5), Told: at(-4), To: at(-3)}, 0},
	} {
		f := &failed{TB: t}
		if Apart(f, first, candidate{"second", &Recorder{spans: Spans{test.other}}}); len(f.lines) != test.fails {
			t.Errorf("%s: failures %q, want %d", name, f.lines, test.fails)
		}
	}
}
