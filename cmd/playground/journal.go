package main

import (
	"slices"
	"sync"
	"time"
)

// journal puts together who worked on what, and when, from what each process said.
type journal struct {
	mu    sync.Mutex
	spans []span
	said  []statement
}

// statement is a line of a process's log, and whose.
type statement struct {
	pod string
	logLine
}

// note keeps a line that the demo may judge by.
func (j *journal) note(pod string, line logLine) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.said = append(j.said, statement{pod, line})
}

// since is what the processes said from an instant on, each in its own order, of an election and of
// themselves: what they said of other elections is not in it.
func (j *journal) since(at time.Time, election string) []statement {
	j.mu.Lock()
	defer j.mu.Unlock()
	var later []statement
	for _, s := range j.said {
		if !s.at.Before(at) && (s.election == election || s.election == "") {
			later = append(later, s)
		}
	}
	return later
}

// began notes that a pod's run function started.
func (j *journal) began(pod, election string, at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.spans = append(j.spans, span{pod: pod, election: election, from: at})
}

// ended notes that it returned.
func (j *journal) ended(pod, election string, at time.Time) {
	j.end(at, func(s span) bool { return s.pod == pod && s.election == election })
}

// died ends at an instant all that a pod's process was at which was alive before
// another: a process that was killed can say nothing more, and the pod's next one may
// have begun already.
func (j *journal) died(pod string, alive, at time.Time) {
	j.end(at, func(s span) bool { return s.pod == pod && !s.from.After(alive) })
}

func (j *journal) end(at time.Time, which func(span) bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, s := range j.spans {
		if s.to.IsZero() && which(s) {
			j.spans[i].to = at
		}
	}
}

// all is every span so far.
func (j *journal) all() []span {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.spans)
}
