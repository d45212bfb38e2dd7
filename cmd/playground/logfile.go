package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// logFile hands out the lines that were added to a file.
type logFile struct {
	name string
	file *os.File
	rest []byte
}

// grown calls line for each whole line that is new. A file that is not there yet has
// none.
func (l *logFile) grown(line func([]byte)) error {
	if l.file == nil {
		file, err := os.Open(l.name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("opening a log: %w", err)
		}
		l.file = file
	}
	text, err := io.ReadAll(l.file)
	if err != nil {
		return fmt.Errorf("reading a log: %w", err)
	}
	l.rest = append(l.rest, text...)
	for {
		head, tail, found := bytes.Cut(l.rest, []byte("\n"))
		if !found {
			return nil
		}
		line(head)
		l.rest = tail
	}
}

func (l *logFile) close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}
