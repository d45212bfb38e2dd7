package play

import "time"

// Part is a process's part in an election, as its judge sees it.
type Part struct {
	Name, Revision string
	Make           Make

	Dead    bool // it was killed: it runs nothing, whatever its goroutines do
	Running bool // its functions run
	Runs    []Span
	Unfit   error           // what its fitness check says
	Lines   []time.Duration // when it logged
}

// Span is one run of the functions; To is zero while it lasts.
type Span struct{ From, To time.Time }

// Ran notes the begin or the end of the functions.
func (p *Part) Ran(is bool, now time.Time) {
	if p.Dead {
		return
	}
	if p.Running = is; is {
		p.Runs = append(p.Runs, Span{From: now})
	} else {
		p.Runs[len(p.Runs)-1].To = now
	}
}

// Kill is the end of a process without a word.
func (p *Part) Kill(now time.Time) {
	if p.Running {
		p.Ran(false, now)
	}
	p.Dead = true
}

// Excludes reports whether the run functions of p and q must not run at the same time. Other electors are not covered.
func (p *Part) Excludes(q *Part) bool {
	return p != q && !p.Make.Peer() && !q.Make.Peer()
}

// Judge is one-at-a-time, and that tokens grow. Its users hold their own lock.
type Judge struct {
	// Violated is told what must not be.
	Violated func(format string, args ...any)

	all   []*Part
	token uint64
	Terms int
}

// Enters adds a process.
func (j *Judge) Enters(p *Part) { j.all = append(j.all, p) }

// Forget begins a new history, in which tokens start anew.
func (j *Judge) Forget() { j.token = 0 }

// Starts is asked when a process's functions start. excused: their token belongs to no history.
func (j *Judge) Starts(p *Part, token uint64, excused bool) {
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

// Writes is asked when a write has passed the gate: no other's functions run.
func (j *Judge) Writes(p *Part) {
	if p.Dead {
		return
	}
	for _, q := range j.all {
		if q.Running && p.Excludes(q) {
			j.Violated("%s writes while %s runs", p.Name, q.Name)
		}
	}
}

// MaxRequests is the most that a process may send about one object in ten RetryPeriods, in
// whatever state and failure; a leader's renewals are ten of them.
const MaxRequests = 100

// MaxLines is the most that it may log in that time.
const MaxLines = 100

// InSpan is the most of these instants, in their order, that fall in one span.
func InSpan(at []time.Duration, span time.Duration) (most int) {
	for i, first := 0, 0; i < len(at); i++ {
		for at[i]-at[first] > span {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}
