package verdict

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Duty is what one controller writes, and the lock that says who may.
type Duty struct {
	Name string
	// Lock is the election's; with PerRevision the writer's revision is appended to it.
	Lock        string
	PerRevision bool
	// Guards tells which writes are this controller's; only those of pods that have a revision are asked about.
	Guards func(w Write) bool
}

// Config says what is judged.
type Config struct {
	// Namespace is the control plane's, with its locks.
	Namespace string
	// Revision is that of an account (a token's user name), "" for whoever is of no revision.
	Revision func(user string) string
	Duties   []Duty
	// Wanted says what objects should be like; nil asks nothing.
	Wanted *Wanted
	// Peers are revisions whose elector is not ours: what they write late is a figure, not a violation.
	Peers []string
	// Requests are the HTTP requests that were sent meanwhile.
	Requests Requests
}

// Requests are how those that the data plane got went.
type Requests struct {
	Sent, Failed int
	// Drain is how long a proxy has for the requests under way when it ends.
	Drain time.Duration
	// Why are some of the failures.
	Why []string
}

// Rule is what a conviction is for.
type Rule string

// The rules.
const (
	Unelected   Rule = "unelected"
	Interleaved Rule = "interleaved"
	Late        Rule = "late"
	Returned    Rule = "returned"
	Unwanted    Rule = "unwanted"
	Incomplete  Rule = "incomplete"
	Failed      Rule = "requests"
)

// Violation is one thing that is wrong.
type Violation struct {
	Rule
	What string
	// Namespace is that of an object that is not as wanted.
	Namespace string
}

func (c Violation) String() string { return string(c.Rule) + ": " + c.What }

// Verdict is what came out.
type Verdict struct {
	Violations []Violation
	Figures
}

// Err is an error that lists the violations; nil if there are none.
func (v Verdict) Err() error {
	if len(v.Violations) == 0 {
		return nil
	}
	const most = 20
	var lines []string
	for _, c := range v.Violations[:min(most, len(v.Violations))] {
		lines = append(lines, "  "+c.String())
	}
	if n := len(v.Violations) - most; n > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more", n))
	}
	return fmt.Errorf("%d violations by the audit log:\n%s", len(v.Violations), strings.Join(lines, "\n"))
}

// judge is a judgement under way.
type judge struct {
	Config
	history History
	verdict Verdict
	terms   map[string][]Term // by lock
	flips   []flip
}

// flip is a write of the default tag that changed the revision.
type flip struct {
	version  uint64
	at       time.Time
	revision string
}

// defaultTag is the webhook whose label says which revision is the default.
const (
	defaultTag    = "istio-revision-tag-default"
	revisionLabel = "istio.io/rev"
)

// Judge judges a history.
func Judge(h History, config Config) Verdict {
	j := &judge{Config: config, history: h, terms: map[string][]Term{}}
	j.findTerms()
	j.findFlips()
	work := j.findWork()
	for _, duty := range config.Duties {
		j.judgeTerms(duty, work[duty.Name])
		j.judgeReturns(duty, work[duty.Name])
	}
	j.judgeWhole(work)
	if config.Wanted != nil {
		j.judgeWanted()
	}
	if r := config.Requests; r.Failed > 0 {
		j.convict(Failed, "%d of %d failed, with a drain of %v: %s", r.Failed, r.Sent, r.Drain, strings.Join(r.Why, "; "))
	}
	j.figures(work)
	return j.verdict
}

func (j *judge) convict(rule Rule, format string, args ...any) {
	j.verdict.Violations = append(j.verdict.Violations, Violation{Rule: rule, What: fmt.Sprintf(format, args...)})
}

func (j *judge) findTerms() {
	writes := map[string][]Write{}
	for _, w := range j.history.Writes {
		if lock := j.lockOf(w); lock != "" {
			writes[lock] = append(writes[lock], w)
		}
	}
	unanswered := map[string][]Write{}
	for _, w := range j.history.Unanswered {
		unanswered[j.lockOf(w)] = append(unanswered[j.lockOf(w)], w)
	}
	for _, lock := range slices.Sorted(maps.Keys(writes)) {
		terms, lacks := lockTerms(lock, writes[lock], unanswered[lock])
		j.terms[lock] = terms
		for _, what := range lacks {
			j.convict(Incomplete, "%s", what)
		}
	}
}

// lockOf is the lock that a write is of, "" for none.
func (j *judge) lockOf(w Write) string {
	if w.Namespace != j.Namespace || w.Resource != "leases" && w.Resource != "configmaps" {
		return ""
	}
	for _, d := range j.Duties {
		if w.Name == d.Lock || d.PerRevision && strings.HasPrefix(w.Name, d.Lock+"-") {
			return w.Name
		}
	}
	return ""
}

func (j *judge) findFlips() {
	now := ""
	for _, w := range j.history.Writes {
		if w.Kind() != "mutatingwebhookconfigurations" || w.Name != defaultTag {
			continue
		}
		if revision := text(w.Object, "metadata", "labels", revisionLabel); revision != now {
			now = revision
			j.flips = append(j.flips, flip{w.Version, w.Answered, revision})
		}
	}
}

// work is a guarded write.
type work struct {
	Write
	revision, lock string
}

// findWork sorts the revisions' writes by duty.
func (j *judge) findWork() map[string][]work {
	found := map[string][]work{}
	for _, w := range j.history.Writes {
		revision := j.Revision(w.User)
		if revision == "" || j.lockOf(w) != "" {
			continue
		}
		for _, d := range j.Duties {
			if !d.Guards(w) {
				continue
			}
			lock := d.Lock
			if d.PerRevision {
				lock += "-" + revision
			}
			found[d.Name] = append(found[d.Name], work{w, revision, lock})
			break
		}
	}
	return found
}

// judgeTerms holds each write against the terms of its lock.
func (j *judge) judgeTerms(duty Duty, all []work) {
	wrote := map[string]uint64{} // the first write of a term, by lock and start
	for _, w := range all {
		var own, latest *Term
		for i := range j.terms[w.lock] {
			if t := &j.terms[w.lock][i]; t.Start < w.Version {
				latest = t
				if t.Pod == w.Pod {
					own = t
				}
			}
		}
		switch {
		case own == nil:
			j.convict(Unelected, "%s: %v, without a term of %s", duty.Name, w, w.lock)
		case own == latest:
			key := fmt.Sprint(w.lock, own.Start)
			if wrote[key] == 0 {
				wrote[key] = w.Version
			}
			// A deleted lock is learnt by the watch.
			if own.End != 0 && own.End < w.Version && own.How != "deleted" {
				j.late(w, own, "%s: %v, and its term was %s at %d", duty.Name, w, own.How, own.End)
			}
		default:
			first := wrote[fmt.Sprint(w.lock, latest.Start)]
			if first == 0 {
				j.late(w, own, "%s: %v, and the term of %s began at %d", duty.Name, w, latest.Pod, latest.Start)
				continue
			}
			j.overlapped(w, own)
			if !slices.Contains(j.Peers, w.revision) {
				j.convict(Interleaved, "%s: %v, and %s, whose term began at %d, had written at %d", duty.Name, w, latest.Pod, latest.Start, first)
			}
		}
	}
}

func (j *judge) late(w work, own *Term, format string, args ...any) {
	j.overlapped(w, own)
	if !slices.Contains(j.Peers, w.revision) {
		j.convict(Late, format, args...)
	}
}

// overlapped notes a write that came after the writer's term.
func (j *judge) overlapped(w work, own *Term) {
	f := &j.verdict.Figures
	f.LateWrites++
	for _, t := range j.terms[w.lock] {
		if t.Start > own.Start && t.Pod != w.Pod {
			f.Overlap = max(f.Overlap, w.Answered.Sub(t.From))
			break
		}
	}
}

// run is a row of writes of one revision to one object.
type run struct {
	revision    string
	first, last work
	contents    map[string]bool
}

// judgeReturns looks for objects that revisions write back and forth.
func (j *judge) judgeReturns(duty Duty, all []work) {
	objects := map[string][]*run{}
	for _, w := range all {
		key := fmt.Sprint(w.UID, " ", w.Resource)
		runs := objects[key]
		if n := len(runs); n == 0 || runs[n-1].revision != w.revision {
			runs = append(runs, &run{revision: w.revision, first: w, contents: map[string]bool{}})
			objects[key] = runs
		}
		now := runs[len(runs)-1]
		now.last, now.contents[content(w.Write)] = w, true
	}
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		runs := objects[key]
		for i := 2; i < len(runs); i++ {
			before, between, again := runs[i-2], runs[i-1], runs[i]
			if before.revision != again.revision || !shares(before.contents, again.contents) || between.contents[content(again.first.Write)] {
				continue
			}
			if !j.flippedTo(again.revision, before.first.Version, again.first.Version) {
				j.convict(Returned, "%s: %v, after %v and %v, without the default having come back to %s",
					duty.Name, again.first, before.last, between.last, again.revision)
			}
		}
	}
}

func shares(a, b map[string]bool) bool {
	for key := range a {
		if b[key] {
			return true
		}
	}
	return false
}

func (j *judge) flippedTo(revision string, after, before uint64) bool {
	return slices.ContainsFunc(j.flips, func(f flip) bool { return f.revision == revision && f.version > after && f.version < before })
}

// content is what a write left, but for what each write changes.
func content(w Write) string {
	parts := map[string]any{"labels": at(w.Object, "metadata", "labels"), "annotations": at(w.Object, "metadata", "annotations")}
	if strings.HasSuffix(w.Resource, "/status") {
		parts = map[string]any{"status": timeless(at(w.Object, "status"))}
	} else {
		for key, value := range w.Object {
			if key != "metadata" && key != "status" {
				parts[key] = value
			}
		}
	}
	encoded, err := json.Marshal(parts)
	if err != nil {
		return err.Error() // of what was decoded from JSON: cannot be
	}
	return string(encoded)
}

// timeless is a value without the times and generations of its conditions.
func timeless(value any) any {
	switch value := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for key, field := range value {
			if key != "lastTransitionTime" && key != "observedGeneration" {
				kept[key] = timeless(field)
			}
		}
		return kept
	case []any:
		var kept []any
		for _, entry := range value {
			kept = append(kept, timeless(entry))
		}
		return kept
	}
	return value
}

// judgeWhole convicts a log in which nothing was to be judged: it would acquit anybody.
func (j *judge) judgeWhole(all map[string][]work) {
	for _, d := range j.Duties {
		if len(all[d.Name]) == 0 {
			j.convict(Incomplete, "nobody wrote what %s guards", d.Lock)
		}
	}
	if len(j.flips) == 0 {
		j.convict(Incomplete, "there was never a default revision")
	}
	for _, w := range j.history.Unanswered {
		// It may have been stored. Whoever sent it may have been within its rights or not, which the version would tell.
		if j.Revision(w.User) != "" && j.lockOf(w) == "" {
			j.verdict.Figures.Unanswered++
		}
	}
	slices.SortStableFunc(j.verdict.Violations, func(a, b Violation) int { return cmp.Compare(a.Rule, b.Rule) })
}
