package logs

import (
	"bytes"
	"slices"
	"strings"
	"sync"
)

// Buffer is a log. Its zero value is empty.
type Buffer struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.Write(p)
}

// String returns the log so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.String()
}

// Take returns the log so far and empties it.
func (b *Buffer) Take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.out.Reset()
	return b.out.String()
}

// Count returns the number of lines that contain all words.
func (b *Buffer) Count(words ...string) int { return Count(b.String(), words...) }

// Count returns the number of lines of a log that contain all words.
func Count(log string, words ...string) (n int) {
	for line := range strings.Lines(log) {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			n++
		}
	}
	return n
}
