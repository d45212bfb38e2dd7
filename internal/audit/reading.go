package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Reading counts the lines of audit logs.
type Reading struct {
	// Events counts the events, Broken the lines that are not JSON. BrokenAt describes the first of them.
	Events, Broken int
	BrokenAt       string
	// Unfinished describes incomplete lines: an API server was killed, or the file was copied while it was written.
	Unfinished []string
	// Truncated describes the ends of truncated files that are compressed or have one JSON value.
	Truncated []string
}

// Incomplete returns the reasons why the logs do not suffice.
func (r *Reading) Incomplete() (reasons []string) {
	if r.Events == 0 {
		reasons = append(reasons, "the log is empty")
	}
	if r.Broken > 0 {
		reasons = append(reasons, fmt.Sprintf("%d lines are not JSON events, first %s", r.Broken, r.BrokenAt))
	}
	for _, at := range r.Truncated {
		reasons = append(reasons, "the file is truncated: "+at)
	}
	return reasons
}

// longestLine is the maximum size of a line: the API server accepts requests of 3 MiB, and a line has request and response.
const longestLine = 32 << 20

var gzipMagic = []byte{0x1f, 0x8b}

var errTooLong = fmt.Errorf("the line is longer than %d MiB; one JSON event per line is needed", longestLine>>20)

// Read calls add for each event of an audit log, also compressed with gzip: one JSON event per line, or what a log service exports. name is
// used in errors. Lines that skip reports are counted only.
func (r *Reading) Read(name string, log io.Reader, skip func(line []byte) bool, add func(Event) error) error {
	lines := bufio.NewReaderSize(log, 256<<10)
	if start, _ := lines.Peek(len(gzipMagic)); bytes.Equal(start, gzipMagic) {
		unpacked, err := gzip.NewReader(lines)
		if err != nil {
			return fmt.Errorf("%s: read gzip: %w", name, err)
		}
		lines = bufio.NewReaderSize(unpacked, 256<<10)
	}
	if start, _ := lines.Peek(2); len(start) > 0 && (start[0] == '[' || string(start) == "{\n" || string(start) == "{\r") {
		return r.document(name, lines, add)
	}
	var line []byte
	for number := 1; ; number++ {
		var err error
		line, err = readLine(lines, line[:0])
		at := fmt.Sprintf("%s:%d", name, number)
		last := errors.Is(err, io.EOF)
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF):
			r.Truncated = append(r.Truncated, at)
			return nil
		case err != nil && !last:
			return fmt.Errorf("%s: %w", at, err)
		}
		line := bytes.TrimSpace(line)
		if len(line) > 0 && skip(line) {
			r.Events++
		} else if err := r.line(at, line, last, add); err != nil {
			return err
		}
		if last {
			return nil
		}
	}
}

// readLine appends a line to the buffer.
func readLine(from *bufio.Reader, line []byte) ([]byte, error) {
	for {
		part, err := from.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > longestLine {
			return line, errTooLong
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// line adds a line. last is true if no newline ended it.
func (r *Reading) line(at string, line []byte, last bool, add func(Event) error) error {
	if len(line) == 0 {
		return nil
	}
	if time, rest, ok := bytes.Cut(line, []byte("Z ")); ok && len(time) < len("2006-01-02T15:04:05.000000000") && time[0] != '{' {
		line = rest // CloudWatch writes the time before each line of an export to S3
	}
	events, err := unwrap(line, "", 0)
	var syntax *json.SyntaxError
	if begin := bytes.LastIndex(line, lineStart); begin > 0 && errors.As(err, &syntax) {
		// A restarted API server appends to the incomplete line of the killed one.
		r.Unfinished = append(r.Unfinished, at)
		events, err = unwrap(line[begin:], "", 0)
	}
	switch {
	case !errors.As(err, &syntax):
		return r.take(at, events, err, add)
	case last && r.Events > 0:
		r.Unfinished = append(r.Unfinished, at)
	case r.Events == 0:
		return fmt.Errorf("%s: not a JSON event of an audit log: %w", at, err)
	default:
		r.broken(at)
	}
	return nil
}

func (r *Reading) broken(at string) {
	r.Broken++
	r.BrokenAt = cmp.Or(r.BrokenAt, at)
}
