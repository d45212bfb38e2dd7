package leaderelection

import "time"

// part is the observed state of a process.
type part struct {
	Name, Revision string
	Make           electorKind

	Dead    bool // killed; its goroutines no longer count
	Running bool // its run functions are active
	Runs    []span
	Unfit   error           // result of its fitness check
	Lines   []time.Duration // times of its log lines
}

// span is one run of the run functions. To is zero while they run.
type span struct{ From, To time.Time }

// Ran records the start or end of the run functions.
func (p *part) Ran(is bool, now time.Time) {
	if p.Dead {
		return
	}
	if p.Running = is; is {
		p.Runs = append(p.Runs, span{From: now})
	} else {
		p.Runs[len(p.Runs)-1].To = now
	}
}

// Kill records that the process was killed.
func (p *part) Kill(now time.Time) {
	if p.Running {
		p.Ran(false, now)
	}
	p.Dead = true
}

// Excludes reports whether the run functions of p and q must not run at the same time. Other electors are not covered.
func (p *part) Excludes(q *part) bool {
	return p != q && !p.Make.Peer() && !q.Make.Peer()
}

// judge checks one-at-a-time, and that tokens increase. Callers synchronize its methods.
type judge struct {
	// Violated receives violations.
	Violated func(format string, args ...any)

	all   []*part
	token uint64
	Terms int
}

// Enters adds a process.
func (j *judge) Enters(p *part) { j.all = append(j.all, p) }

// Forget starts a new history: tokens can be lower.
func (j *judge) Forget() { j.token = 0 }

// Starts records that run functions start. If excused, their token belongs to no history.
func (j *judge) Starts(p *part, token uint64, excused bool) {
	if p.Dead {
		return
	}
	j.Terms++
	for _, q := range j.all {
		if q.Running && p.Excludes(q) {
			j.Violated("%s started while %s runs", p.Name, q.Name)
		}
	}
	if excused {
		return
	}
	if token <= j.token {
		j.Violated("%s has the token %d after %d", p.Name, token, j.token)
	}
	j.token = token
}

// Writes records that a write has passed the gate.
func (j *judge) Writes(p *part) {
	if p.Dead {
		return
	}
	for _, q := range j.all {
		if q.Running && p.Excludes(q) {
			j.Violated("%s writes while %s runs", p.Name, q.Name)
		}
	}
}

// maxRequests is the maximum number of requests of a process for one object in ten RetryPeriods. Ten of
// them are renewals of a leader.
const maxRequests = 100

// maxLines is the maximum number of log lines in that time.
const maxLines = 100

// mostInSpan returns the maximum number of sorted times within a span.
func mostInSpan(at []time.Duration, span time.Duration) (most int) {
	for i, first := 0, 0; i < len(at); i++ {
		for at[i]-at[first] > span {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}
