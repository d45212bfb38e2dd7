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
	// from, to, why and claim are of a change of phase: claim is how a new leader came by the lock.
	from, to, why, claim string
}

// The server's own words, by which the demo judges.
const (
	saidServer  = "server" // the first words of a process
	saidBegan   = "run function started"
	saidEnded   = "run function ended"
	saidPhase   = "election phase changed"
	saidInOrder = "server has ended"
)

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
	wanted := map[string]*string{
		"election": &said.election, "from": &said.from, "to": &said.to, "why": &said.why, "claim": &said.claim,
	}
	for _, label := range fields[4:] {
		for pair := range strings.FieldsSeq(label) {
			key, value, _ := strings.Cut(pair, "=")
			if into := wanted[key]; into != nil && *into == "" {
				*into = value
			}
		}
	}
	return said, true
}
