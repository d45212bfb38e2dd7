package harness

import (
	"bytes"
	"slices"
	"strings"
	"sync"
)

// Log is a log that can be read while it is written. Its zero value is empty.
type Log struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (b *Log) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.Write(p)
}

// String returns the log so far.
func (b *Log) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.String()
}

// Take returns the log so far and empties it.
func (b *Log) Take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.out.Reset()
	return b.out.String()
}

// Count returns the number of lines that contain all words.
func (b *Log) Count(words ...string) int { return Count(b.String(), words...) }

// Count returns the number of lines of a log that contain all words.
func Count(log string, words ...string) (n int) {
	for line := range strings.Lines(log) {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			n++
		}
	}
	return n
}
