package audit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Options configure Examine.
type Options struct {
	// Guards assign writes to locks. They precede the guards of Istio and the learned assignments.
	Guards []Guard
	// Lock limits the report to locks of that name. Optional.
	Lock string
	// MaxChanges is the largest acceptable number of changes of the holder within Window.
	MaxChanges int
	Window     time.Duration
	// MaxLeaderless is the longest acceptable time without a leader. If 0, every time is acceptable.
	MaxLeaderless time.Duration
}

// Report is the result of an audit.
type Report struct {
	// Span has the times of the first and the last write.
	Span
	// Events counts the events, Writes the stored writes of candidates and other programs.
	Events int `json:"events"`
	Writes int `json:"writes"`
	// ByTime counts the judged writes without a logged version. They were compared by time stamps.
	ByTime   int          `json:"judgedByTime"`
	Locks    []LockReport `json:"locks"`
	Findings []Finding    `json:"findings"`
	// Incomplete has the reasons why the log does not suffice for an acquittal, Notes further remarks.
	Incomplete []string `json:"incomplete"`
	Notes      []string `json:"notes"`
	// NotJudged counts the writes of candidates by resource that belong to no lock.
	NotJudged map[string]int `json:"notJudged"`
}

// Span is the time from the first to the last of several events.
type Span struct {
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// Add extends the span to an event.
func (s *Span) Add(at time.Time) {
	if s.First.IsZero() || at.Before(s.First) {
		s.First = at
	}
	if at.After(s.Last) {
		s.Last = at
	}
}

// LockReport describes a lock.
type LockReport struct {
	Lock
	// Holder is the leader at the end of the log, or "".
	Holder string `json:"holder"`
	// Terms counts the terms, Changes the changes of the leader's pod.
	Terms   int `json:"terms"`
	Changes int `json:"changes"`
	// Leaderless is the longest time from the last write of a holder to the first one of the next, which began at LeaderlessUntil.
	Leaderless      Seconds   `json:"leaderlessSeconds"`
	LeaderlessUntil time.Time `json:"leaderlessUntil,omitzero"`
	// Judged counts the guarded writes, Breaches the writes of pods that did not hold the lock.
	Judged   int `json:"judged"`
	Breaches int `json:"breaches"`
}

// missing adds a reason why the log does not suffice.
func (r *Report) missing(format string, args ...any) {
	r.Incomplete = append(r.Incomplete, fmt.Sprintf(format, args...))
}

func (r *Report) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// Seconds is a duration that is a number of seconds in JSON.
type Seconds time.Duration

// MarshalJSON returns the number of seconds.
func (s Seconds) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "%.3f", time.Duration(s).Seconds()), nil
}

// The rules of locks.
const (
	Flapping   Rule = "flapping"
	Leaderless Rule = "leaderless"
)

// Finding is a group of breaches of one pod after one term, or a fact about a lock.
type Finding struct {
	Rule Rule   `json:"rule"`
	Lock Lock   `json:"lock"`
	Pod  string `json:"pod,omitempty"`
	// Ended is the end of the pod's term, Next the pod whose term followed.
	Ended Change `json:"ended,omitempty"`
	Next  string `json:"next,omitempty"`
	// Count is the number of writes or changes in the Span.
	Count int `json:"count"`
	Span
	// Late is the time from the loss to the last write, Overlap the time from the beginning of the next term to the last write.
	Late    Seconds `json:"lateSeconds"`
	Overlap Seconds `json:"overlapSeconds"`
	// Objects are some of the written objects.
	Objects []string `json:"objects,omitempty"`
	// Approximate is true if time stamps were compared.
	Approximate bool `json:"approximate,omitempty"`
}

const mostObjects = 3

// group identifies a finding.
type group struct {
	lock Lock
	pod  string
	own  *Term
}

// examination holds the state of Examine.
type examination struct {
	Options
	history History
	courses map[Lock]*Course
	report  Report
	groups  map[group]*Finding
	// unproved counts the breaches that a lost write of the lock may explain.
	unproved map[Lock]int
	evidence *attribution
}

// Examine judges a log.
func Examine(log *Log, options Options) Report {
	h := log.History()
	x := &examination{
		Options: options, history: h, courses: h.Courses(), groups: map[group]*Finding{}, unproved: map[Lock]int{},
		report: Report{Events: log.Events, Writes: len(log.entries), Locks: []LockReport{}, Findings: []Finding{}, Incomplete: []string{}, Notes: []string{}},
	}
	if why := h.clusters(); why != "" {
		x.report.missing("%s", why)
		return x.report
	}
	for w := range h.All() {
		x.report.Add(w.Received)
		x.report.Add(w.Answered)
	}
	a := attribute(h, x.courses, append(slices.Clone(options.Guards), Istio()...))
	guards := func(w Write) []Lock {
		return slices.DeleteFunc(a.guards(w), func(l Lock) bool { return !x.wanted(l) })
	}
	x.evidence = a
	result := Judge(h, x.courses, guards, x.breach)
	x.report.NotJudged = a.unclear
	x.report.ByTime = result.ByTime
	for _, lock := range h.Locks() {
		if x.wanted(lock) {
			x.lock(lock, result.Judged[lock])
		}
	}
	x.findings()
	x.complete(result)
	x.doubts(a, guards)
	return x.report
}

// doubts adds the writes that may be breaches.
func (x *examination) doubts(a *attribution, guards func(Write) []Lock) {
	for _, account := range slices.Sorted(maps.Keys(a.foreign)) {
		x.report.note("%d writes of %s were not judged: several candidates run at one address", a.foreign[account], account)
	}
	late := map[Lock]int{}
	for _, w := range x.history.Unanswered() {
		if locks := guards(w); len(locks) > 0 {
			if b, in := a.books.judge(w, locks); in == after {
				late[b.Lock]++
			}
		}
	}
	for _, matter := range slices.Sorted(maps.Keys(a.disputed)) {
		x.report.missing("%d writes of %s are late for one of the locks that may guard them: assign them with --guard LOCK=%[2]s, or --guard -=%[2]s if every replica makes them",
			a.disputed[matter], matter)
	}
	for _, lock := range x.history.Locks() {
		if n := x.unproved[lock]; n > 0 {
			x.report.missing("%d writes are of pods that did not hold %v, unless a missing line explains them", n, lock)
		}
		if n := late[lock]; n > 0 {
			x.report.missing("%d writes of pods that did not hold %v have no logged result", n, lock)
		}
	}
}

func (x *examination) wanted(l Lock) bool { return x.Lock == "" || x.Lock == l.Name }

// lacksWrites reports whether the log lost writes, which may be of a lock.
func (x *examination) lacksWrites(lock Lock) bool {
	log := x.history.log
	return log.Broken > 0 || len(log.Truncated) > 0 || len(x.courses[lock].Gaps) > 0
}

// breach adds a write to its finding.
func (x *examination) breach(b Breach) {
	if x.lacksWrites(b.Lock) && !(x.evidence.books[b.Lock].proved(b.Write) && len(x.evidence.byGuard(b.Write)) > 0) {
		x.unproved[b.Lock]++
		return
	}
	key := group{b.Lock, b.Pod, b.Own}
	f := x.groups[key]
	if f == nil {
		f = &Finding{Rule: b.Rule, Lock: b.Lock, Pod: b.Pod}
		if b.Own != nil {
			f.Ended = b.Own.Ended
		}
		x.groups[key] = f
	}
	if b.Rule == Interleaved {
		f.Rule = Interleaved
	}
	if b.Next != nil {
		f.Next = b.Next.Pod
	}
	f.Count++
	f.Add(b.Answered)
	f.Late = max(f.Late, Seconds(b.Late))
	f.Overlap = max(f.Overlap, Seconds(b.Overlap))
	f.Approximate = f.Approximate || !b.Exact
	if name := b.object(); len(f.Objects) < mostObjects && !slices.Contains(f.Objects, name) {
		f.Objects = append(f.Objects, name)
	}
}

// lock adds the report and the findings of a lock.
func (x *examination) lock(lock Lock, judged int) {
	c := x.courses[lock]
	r := LockReport{Lock: lock, Terms: len(c.Terms), Judged: judged}
	for key, f := range x.groups {
		if key.lock == lock {
			r.Breaches += f.Count
		}
	}
	if n := len(c.Terms); n > 0 && c.Terms[n-1].Ended == "" {
		r.Holder = c.Terms[n-1].Pod
	}
	longest, before := c.Leaderless()
	if longest > 0 {
		r.Leaderless = Seconds(longest)
		r.LeaderlessUntil = c.Terms[before].Start.Answered
	}
	if x.MaxLeaderless > 0 && longest > x.MaxLeaderless {
		x.report.Findings = append(x.report.Findings, Finding{
			Rule: Leaderless, Lock: lock, Pod: c.Terms[before-1].Pod, Ended: c.Terms[before-1].Ended, Next: c.Terms[before].Pod, Count: 1,
			Span: Span{c.Terms[before-1].To, c.Terms[before].Start.Answered}, Late: r.Leaderless,
		})
	}
	all, most, until := c.Changes(x.Window)
	r.Changes = all
	if x.MaxChanges > 0 && most > x.MaxChanges {
		x.report.Findings = append(x.report.Findings, Finding{
			Rule: Flapping, Lock: lock, Count: most, Span: Span{until.Add(-x.Window), until},
		})
	}
	x.report.Incomplete = append(x.report.Incomplete, c.Gaps...)
	if c.Silent > 0 {
		x.report.note("the holder of %v did not renew it for %v until %s: the log may lack a file, or the holder stopped",
			lock, c.Silent.Round(time.Second), c.Until.UTC().Format(time.RFC3339))
	}
	x.report.Locks = append(x.report.Locks, r)
}

// findings sorts the findings: writes first, by time.
func (x *examination) findings() {
	for _, f := range x.groups {
		x.report.Findings = append(x.report.Findings, *f)
	}
	slices.SortFunc(x.report.Findings, func(a, b Finding) int {
		return cmp.Or(a.First.Compare(b.First), cmp.Compare(a.Lock.String(), b.Lock.String()), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Rule, b.Rule))
	})
}

// blind reports writes of locks without bodies. It returns the number of such writes of other objects.
func (x *examination) blind() (others int) {
	l := x.history.log
	blind := map[Lock]int{}
	for _, e := range l.entries {
		if !e.blind {
			continue
		}
		if lock := e.target.Value().lock(); x.history.locks[lock] {
			blind[lock]++
		} else {
			others++
		}
	}
	for _, lock := range slices.SortedFunc(maps.Keys(blind), func(a, b Lock) int { return cmp.Compare(a.String(), b.String()) }) {
		x.report.missing("%d writes of %v have no body: log them at level RequestResponse", blind[lock], lock)
	}
	return others
}

// complete adds the reasons why the log does not suffice.
func (x *examination) complete(result Result) {
	r, l := &x.report, x.history.log
	others := x.blind()
	for _, g := range x.Guards {
		if g.Lock != NoLock && len(r.Locks) > 0 && !slices.ContainsFunc(x.history.Locks(), g.Has) {
			r.missing("the log has no lock %s, to which a guard assigns %s", g.Lock, strings.Join(g.Resources, ", "))
		}
	}
	judged := 0
	for _, n := range result.Judged {
		judged += n
	}
	r.Incomplete = append(r.Incomplete, l.Reading.Incomplete()...)
	switch {
	case l.Events == 0:
	case len(r.Locks) == 0 && x.Lock != "":
		r.missing("the log has no lock %s", x.Lock)
	case len(r.Locks) == 0 && others > 0:
		r.missing("the level of the log is too low: %d writes of Leases, ConfigMaps or Endpoints have no body, which names the holder", others)
	case len(r.Locks) == 0:
		r.missing("the log has no lock: no Lease, ConfigMap or Endpoints with a holder was written")
	case judged == 0:
		r.missing("the log has locks, but no other write of their candidates: log these writes too")
	}
	for _, at := range l.Unfinished {
		r.note("an incomplete line was ignored: %s", at)
	}
	if result.Undecided > 0 {
		r.note("%d writes were not judged, because they may be before or after a change of the leader", result.Undecided)
	}
	if len(l.open) > 0 {
		r.note("%d writes have no logged response, or an error of the API server. They may have been stored or not", len(l.open))
	}
}
