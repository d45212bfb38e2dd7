package logs

import (
	"fmt"
	"sync"
	"testing"
)

func TestBuffer(t *testing.T) {
	var b Buffer
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() { fmt.Fprintf(&b, "line %d of some\n", i) })
	}
	writers.Wait()
	for _, c := range []struct {
		words []string
		want  int
	}{{nil, 4}, {[]string{"line", "some"}, 4}, {[]string{"line 2"}, 1}, {[]string{"line 2", "none"}, 0}} {
		if got := b.Count(c.words...); got != c.want {
			t.Errorf("%q: %d lines, want %d", c.words, got, c.want)
		}
	}
}
