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

// Duty describes what one controller writes, and the lock that guards it.
type Duty struct {
	Name string
	// Lock is the election. If PerRevision is true, the writer's revision is appended.
	Lock        string
	PerRevision bool
	// Guards reports whether a write is one of this controller. It is called for writes of Pods that have a revision.
	Guards func(w Write) bool
}

// Config is the configuration of Judge.
type Config struct {
	// Namespace is the control plane's namespace, with its locks.
	Namespace string
	// Revision returns the revision of a user name, or "".
	Revision func(user string) string
	Duties   []Duty
	// Wanted describes the desired state of objects. Optional.
	Wanted *Wanted
	// Peers are revisions that use another elector. Their late writes are counted, but are no violations.
	Peers []string
	// Requests are the results of the HTTP requests that were sent.
	Requests Requests
}

// Requests are the results of HTTP requests through the data plane.
type Requests struct {
	Sent, Failed int
	// Drain is the time that a proxy has for open requests when it ends.
	Drain time.Duration
	// Errors are some of the failures.
	Errors []string
}

// Rule names the rule that was violated.
type Rule string

// The rules.
const (
	// Unelected: a Pod wrote a guarded object without ever having had a term.
	Unelected Rule = "unelected"
	// Interleaved: a Pod wrote after the later term of another Pod had begun to write.
	Interleaved Rule = "interleaved"
	// Late: a Pod wrote after its term had ended or another one had begun.
	Late Rule = "late"
	// Returned: one revision wrote an object, another changed it, and the first wrote it back, although the default
	// revision had not returned to it.
	Returned Rule = "returned"
	// Unwanted: at the end an object is not in its desired state.
	Unwanted Rule = "unwanted"
	// Incomplete: the log lacks writes, or nothing was there to be judged.
	Incomplete Rule = "incomplete"
	// Failed: HTTP requests failed.
	Failed Rule = "requests"
)

// Violation is one violation of a rule.
type Violation struct {
	Rule
	Text string
	// Namespace is the namespace of an object that is not in its desired state.
	Namespace string
}

func (v Violation) String() string { return string(v.Rule) + ": " + v.Text }

// Verdict is the result.
type Verdict struct {
	Violations []Violation
	Figures
}

// Err returns an error that lists the violations of the given rules, or of all rules; nil if there are none.
func (v Verdict) Err(rules ...Rule) error {
	const most = 20
	var lines []string
	for _, violation := range v.Violations {
		if len(rules) == 0 || slices.Contains(rules, violation.Rule) {
			lines = append(lines, "  "+violation.String())
		}
	}
	n := len(lines)
	if n == 0 {
		return nil
	}
	if n > most {
		lines = append(lines[:most], fmt.Sprintf("  and %d more", n-most))
	}
	return fmt.Errorf("%d violations in the audit log:\n%s", n, strings.Join(lines, "\n"))
}

// judge holds the state of Judge.
type judge struct {
	Config
	history History
	verdict Verdict
	terms   map[string][]Term // by lock
	flips   []flip
}

// flip is a change of the default revision.
type flip struct {
	version  uint64
	at       time.Time
	revision string
}

// defaultTag is the webhook whose label names the default revision.
const (
	defaultTag    = "istio-revision-tag-default"
	revisionLabel = "istio.io/rev"
)

// Judge judges a history.
func Judge(h History, config Config) Verdict {
	j := &judge{Config: config, history: h, terms: map[string][]Term{}}
	j.findTerms()
	j.findFlips()
	guarded := j.findGuarded()
	for _, duty := range config.Duties {
		j.judgeTerms(duty, guarded[duty.Name])
		j.judgeReturns(duty, guarded[duty.Name])
	}
	j.judgeLog(guarded)
	if config.Wanted != nil {
		j.judgeWanted()
	}
	if r := config.Requests; r.Failed > 0 {
		j.add(Failed, "%d of %d failed, with a drain of %v: %s", r.Failed, r.Sent, r.Drain, strings.Join(r.Errors, "; "))
	}
	slices.SortStableFunc(j.verdict.Violations, func(a, b Violation) int { return cmp.Compare(a.Rule, b.Rule) })
	j.measure(guarded)
	return j.verdict
}

func (j *judge) add(rule Rule, format string, args ...any) {
	j.verdict.Violations = append(j.verdict.Violations, Violation{Rule: rule, Text: fmt.Sprintf(format, args...)})
}

func (j *judge) findTerms() {
	locks := map[string]bool{}
	for _, w := range j.history.Writes {
		if lock := j.lockOf(w); lock != "" {
			locks[lock] = true
		}
	}
	for _, lock := range slices.Sorted(maps.Keys(locks)) {
		terms, gaps := j.history.terms(j.Namespace, lock)
		j.terms[lock] = terms
		for _, gap := range gaps {
			j.add(Incomplete, "%s", gap)
		}
	}
}

// lockOf returns the lock that a write changes, or "".
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
	current := ""
	for _, w := range j.history.Writes {
		if w.Kind() != "mutatingwebhookconfigurations" || w.Name != defaultTag {
			continue
		}
		if revision := text(w.Object, "metadata", "labels", revisionLabel); revision != current {
			current = revision
			j.flips = append(j.flips, flip{w.Version, w.Answered, revision})
		}
	}
}

// guarded is a write of a revision to an object that an election guards.
type guarded struct {
	Write
	revision, lock string
}

// findGuarded groups the guarded writes by duty.
func (j *judge) findGuarded() map[string][]guarded {
	found := map[string][]guarded{}
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
			found[d.Name] = append(found[d.Name], guarded{w, revision, lock})
			break
		}
	}
	return found
}

// judgeTerms compares each guarded write with the terms of its lock.
func (j *judge) judgeTerms(duty Duty, all []guarded) {
	wrote := map[uint64]uint64{} // the first guarded write of a term, by the start of the term
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
			j.add(Unelected, "%s: %v, without a term of %s", duty.Name, w, w.lock)
		case own == latest:
			wrote[own.Start] = cmp.Or(wrote[own.Start], w.Version)
			// The leader learns of a deleted or corrupted lock only by its watch.
			if own.End != 0 && own.End < w.Version && own.Ended != Deleted && own.Ended != Corrupted {
				j.addLate(Late, w, own, "its term was %s at %d", own.Ended, own.End)
			}
		case wrote[latest.Start] == 0:
			j.addLate(Late, w, own, "the term of %s began at %d", latest.Pod, latest.Start)
		default:
			j.addLate(Interleaved, w, own, "%s, whose term began at %d, had written at %d", latest.Pod, latest.Start, wrote[latest.Start])
		}
	}
}

// addLate adds a write that came after the writer's term.
func (j *judge) addLate(rule Rule, w guarded, own *Term, format string, args ...any) {
	f := &j.verdict.Figures
	f.LateWrites++
	for _, t := range j.terms[w.lock] {
		if t.Start > own.Start && t.Pod != w.Pod {
			f.Overlap = max(f.Overlap, w.Answered.Sub(t.From))
			break
		}
	}
	if !slices.Contains(j.Peers, w.revision) {
		j.add(rule, "%v, and %s", w, fmt.Sprintf(format, args...))
	}
}

// run is a sequence of writes of one revision to one object.
type run struct {
	revision    string
	first, last guarded
	contents    map[string]bool
}

// judgeReturns finds objects that two revisions write alternately.
func (j *judge) judgeReturns(duty Duty, all []guarded) {
	objects := map[string][]*run{}
	for _, w := range all {
		key := fmt.Sprint(w.UID, " ", w.Resource)
		runs := objects[key]
		if n := len(runs); n == 0 || runs[n-1].revision != w.revision {
			runs = append(runs, &run{revision: w.revision, first: w, contents: map[string]bool{}})
			objects[key] = runs
		}
		current := runs[len(runs)-1]
		current.last = w
		current.contents[content(w.Write)] = true
	}
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		runs := objects[key]
		for i := 2; i < len(runs); i++ {
			before, between, again := runs[i-2], runs[i-1], runs[i]
			if before.revision != again.revision || !intersect(before.contents, again.contents) || between.contents[content(again.first.Write)] {
				continue
			}
			if !j.flippedTo(again.revision, before.first.Version, again.first.Version) {
				j.add(Returned, "%s: %v, after %v and %v, although the default revision did not return to %s",
					duty.Name, again.first, before.last, between.last, again.revision)
			}
		}
	}
}

func intersect(a, b map[string]bool) bool {
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

// content returns the content of a write without the fields that every write changes.
func content(w Write) string {
	parts := map[string]any{"labels": at(w.Object, "metadata", "labels"), "annotations": at(w.Object, "metadata", "annotations")}
	if strings.HasSuffix(w.Resource, "/status") {
		parts = map[string]any{"status": withoutTimes(at(w.Object, "status"))}
	} else {
		for key, value := range w.Object {
			if key != "metadata" && key != "status" {
				parts[key] = value
			}
		}
	}
	encoded, err := json.Marshal(parts)
	if err != nil {
		return err.Error() // not possible: parts was decoded from JSON
	}
	return string(encoded)
}

// withoutTimes returns a value without the times and generations of its conditions.
func withoutTimes(value any) any {
	switch value := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for key, field := range value {
			if key != "lastTransitionTime" && key != "observedGeneration" {
				kept[key] = withoutTimes(field)
			}
		}
		return kept
	case []any:
		var kept []any
		for _, entry := range value {
			kept = append(kept, withoutTimes(entry))
		}
		return kept
	}
	return value
}

// judgeLog reports a log without guarded writes, which would otherwise pass without a check.
func (j *judge) judgeLog(all map[string][]guarded) {
	for _, d := range j.Duties {
		if len(all[d.Name]) == 0 {
			j.add(Incomplete, "no write is guarded by %s", d.Lock)
		}
	}
	if len(j.flips) == 0 {
		j.add(Incomplete, "there was never a default revision")
	}
	for _, w := range j.history.Unanswered {
		if j.Revision(w.User) != "" && j.lockOf(w) == "" {
			j.verdict.Figures.Unanswered++
		}
	}
}
