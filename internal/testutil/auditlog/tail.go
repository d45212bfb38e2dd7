package auditlog

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

// Tail reads a growing audit log.
type Tail struct {
	// File is the log. The caller closes it.
	File *os.File
	rest []byte // an incomplete line
}

// Read passes the complete lines since the last call.
func (l *Tail) Read(into func(name string, lines io.Reader) error) error {
	more, err := io.ReadAll(l.File)
	if err != nil {
		return fmt.Errorf("read audit log: %w", err)
	}
	text := append(l.rest, more...)
	complete := bytes.LastIndexByte(text, '\n') + 1
	l.rest = bytes.Clone(text[complete:])
	return into(l.File.Name(), bytes.NewReader(text[:complete]))
}

// DropPart removes an incomplete last line, which a killed API server has left. The next process would append to it.
func (l *Tail) DropPart() error {
	end, err := l.File.Seek(-int64(len(l.rest)), io.SeekCurrent)
	if err == nil {
		err = os.Truncate(l.File.Name(), end)
	}
	l.rest = nil
	return err
}
