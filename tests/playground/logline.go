package main

import (
	"bytes"
	"strings"
	"time"
)

// logLine is what matters here of a line that the server logged.
type logLine struct {
	at       time.Time
	message  string
	election string
}

// parseLine reads "time\tlevel\tscope\tmessage\tkey=value key=value". Other lines, such
// as a panic's, are none.
func parseLine(line []byte) (logLine, bool) {
	fields := strings.Split(string(bytes.TrimSpace(line)), "\t")
	if len(fields) < 4 {
		return logLine{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, fields[0])
	if err != nil {
		return logLine{}, false
	}
	said := logLine{at: at.Local(), message: fields[3]}
	for _, label := range fields[4:] {
		for pair := range strings.FieldsSeq(label) {
			if value, ok := strings.CutPrefix(pair, "election="); ok {
				said.election = value
			}
		}
	}
	return said, true
}
