package leaderelection

import "time"

// part is a process's part in an election, as its judge sees it.
type part struct {
	Name, Revision string
	Make           electorKind

	Dead    bool // it was killed: it runs nothing, whatever its goroutines do
	Running bool // its functions run
	Runs    []span
	Unfit   error           // what its fitness check says
	Lines   []time.Duration // when it logged
}

// span is one run of the functions; To is zero while it lasts.
type span struct{ From, To time.Time }

// Ran notes the begin or the end of the functions.
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

// Kill is the end of a process without a word.
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

// judge is one-at-a-time, and that tokens grow. Its users hold their own lock.
type judge struct {
	// Violated is told what must not be.
	Violated func(format string, args ...any)

	all   []*part
	token uint64
	Terms int
}

// Enters adds a process.
func (j *judge) Enters(p *part) { j.all = append(j.all, p) }

// Forget begins a new history, in which tokens start anew.
func (j *judge) Forget() { j.token = 0 }

// Starts is asked when a process's functions start. excused: their token belongs to no history.
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

// Writes is asked when a write has passed the gate: no other's functions run.
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

// maxRequests is the most that a process may send about one object in ten RetryPeriods, in
// whatever state and failure; a leader's renewals are ten of them.
const maxRequests = 100

// maxLines is the most that it may log in that time.
const maxLines = 100

// mostInSpan is the most of these instants, in their order, that fall in one span.
func mostInSpan(at []time.Duration, span time.Duration) (most int) {
	for i, first := 0, 0; i < len(at); i++ {
		for at[i]-at[first] > span {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}
