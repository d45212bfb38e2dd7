package ctl

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// bar is the progress bar on a terminal. Elsewhere it prints nothing.
type bar struct {
	out         io.Writer
	total, done int64
	shown       int64 // the last printed step
}

const (
	barWidth = 40
	// drawEvery is the number of bytes after which the bar is drawn.
	drawEvery = 4 << 20
)

func newBar(out io.Writer) *bar {
	if file, is := out.(*os.File); !is || !term.IsTerminal(int(file.Fd())) {
		return &bar{out: io.Discard}
	}
	return &bar{out: out}
}

func (b *bar) add(n int) {
	b.done += int64(n)
	if b.done/drawEvery > b.shown {
		b.shown = b.done / drawEvery
		fmt.Fprint(b.out, "\r"+b.String())
	}
}

func (b *bar) end() {
	if b.shown > 0 {
		fmt.Fprint(b.out, "\r\x1b[K")
	}
}

// String returns the bar. Without a known size, as for standard input, it has the number of bytes only.
func (b *bar) String() string {
	if b.total < b.done || b.total == 0 {
		return fmt.Sprintf("%d MB", b.done/1e6)
	}
	full := int(b.done * barWidth / b.total)
	return fmt.Sprintf("[%s%s] %3d%%  %d of %d MB",
		strings.Repeat("#", full), strings.Repeat(".", barWidth-full), b.done*100/b.total, b.done/1e6, b.total/1e6)
}
