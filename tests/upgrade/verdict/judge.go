package verdict

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"incumbent.dev/incumbent/internal/audit"
	"incumbent.dev/incumbent/internal/tagging"
)

// Config is the configuration of Judge.
type Config struct {
	// Namespace is the control plane's namespace, with its locks.
	Namespace string
	// Revision returns the revision of a user name, or "".
	Revision func(user string) string
	// Guards assign the writes of Pods that have a revision to elections.
	Guards []audit.Guard
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
type Rule = audit.Rule

// The rules, in addition to those of package audit.
const (
	// Returned: one revision wrote an object, another changed it, and the first wrote it back, although the default
	// revision had not returned to it.
	Returned Rule = "returned"
	// Incomplete: the log lacks writes, or nothing was there to be judged.
	Incomplete Rule = "incomplete"
	// Failed: HTTP requests failed.
	Failed Rule = "requests"
)

// Violation is one violation of a rule.
type Violation struct {
	Rule
	Text string
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
	history audit.History
	verdict Verdict
	courses map[audit.Lock]*audit.Course
	flips   []flip
	// gateways are the writes of each Gateway, by namespace and name.
	gateways map[string][]audit.Write
}

// flip is a change of the default revision.
type flip struct {
	version  uint64
	at       time.Time
	revision string
}

// Judge judges a history.
func Judge(h audit.History, config Config) Verdict {
	j := &judge{Config: config, history: h, courses: h.Courses(), gateways: map[string][]audit.Write{}}
	j.findFlips()
	j.findGateways()
	guarded := j.findGuarded()
	audit.Judge(h, j.courses, func(w audit.Write) []audit.Lock {
		_, locks := j.guardOf(w)
		return locks
	}, j.breach)
	for _, g := range config.Guards {
		j.judgeReturns(g.Lock, guarded[g.Lock])
	}
	j.judgeLog(guarded)
	if r := config.Requests; r.Failed > 0 {
		j.add(Failed, "%d of %d failed, with a drain of %v: %s", r.Failed, r.Sent, r.Drain, strings.Join(r.Errors, "; "))
	}
	j.measure(guarded)
	slices.SortStableFunc(j.verdict.Violations, func(a, b Violation) int { return cmp.Compare(a.Rule, b.Rule) })
	return j.verdict
}

func (j *judge) add(rule Rule, format string, args ...any) {
	j.verdict.Violations = append(j.verdict.Violations, Violation{rule, fmt.Sprintf(format, args...)})
}

func (j *judge) findFlips() {
	current := ""
	for w := range j.history.All() {
		if kindOf(w) != "mutatingwebhookconfigurations" || w.Name != tagging.DefaultTagWebhook(j.Namespace) {
			continue
		}
		if revision := text(w.Object, "metadata", "labels", tagging.Label); revision != current {
			current = revision
			j.flips = append(j.flips, flip{w.Version, w.Answered, revision})
		}
	}
}

func (j *judge) findGateways() {
	for w := range j.history.All() {
		if kindOf(w) == "gateways" {
			j.gateways[w.Namespace+"/"+w.Name] = append(j.gateways[w.Namespace+"/"+w.Name], w)
		}
	}
}

// orphaned reports whether a write is to the status of a route after its Gateways were deleted. Then each revision removes the
// entries of the Gateways, and a revision with a late cache may write them once more.
func (j *judge) orphaned(w audit.Write) bool {
	names := parents(w.Object)
	return w.Resource == "httproutes/status" && len(names) > 0 && !slices.ContainsFunc(names, func(name string) bool {
		exists := true
		for _, change := range j.gateways[w.Namespace+"/"+name] {
			if change.Version <= w.Version {
				exists = !change.Deleted
			}
		}
		return exists
	})
}

// guarded is a write of a revision to an object that an election guards.
type guarded struct {
	audit.Write
	revision string
}

// guardOf returns the election that guards a write, and its possible locks. Their name has the revision if there is a lock per revision.
func (j *judge) guardOf(w audit.Write) (election string, locks []audit.Lock) {
	revision := j.Revision(w.User)
	if revision == "" {
		return "", nil
	}
	for _, g := range j.Guards {
		if g.Guards(w) {
			name := g.Lock
			if g.PerRevision {
				name += "-" + revision
			}
			return g.Lock, sameName(j.Namespace, name)
		}
	}
	return "", nil
}

// findGuarded groups the guarded writes by election.
func (j *judge) findGuarded() map[string][]guarded {
	found := map[string][]guarded{}
	for w := range j.history.All() {
		if election, _ := j.guardOf(w); election != "" {
			found[election] = append(found[election], guarded{w, j.Revision(w.User)})
		}
	}
	return found
}

// breach adds a write of a Pod that did not hold its lock. Late writes of peers are counted only.
func (j *judge) breach(b audit.Breach) {
	if b.Rule != audit.Unelected {
		f := &j.verdict.Figures
		f.LateWrites++
		f.Overlap = max(f.Overlap, b.Overlap)
		if slices.Contains(j.Peers, j.Revision(b.User)) {
			return
		}
	}
	j.add(b.Rule, "%s", describe(b))
}

// describe returns the write and the term that it violates.
func describe(b audit.Breach) string {
	text := fmt.Sprintf("%s by %s of %s %s/%s at %d, ", b.Verb, cmp.Or(b.Pod, b.User), b.Resource, b.Namespace, b.Name, b.Version)
	switch {
	case b.Own == nil:
		return text + "without a term of " + b.Lock.Name
	case b.Next != nil:
		return text + fmt.Sprintf("and the term of %s began at %d", b.Next.Pod, b.Next.Start.Version)
	}
	return text + fmt.Sprintf("and its term was %s at %d", b.Own.Ended, b.Own.End.Version)
}

// run is a sequence of writes of one revision to one object.
type run struct {
	revision    string
	first, last guarded
	contents    sets.Set[string]
}

// judgeReturns finds objects that two revisions write alternately.
func (j *judge) judgeReturns(election string, all []guarded) {
	objects := map[string][]*run{}
	for _, w := range all {
		key := fmt.Sprint(w.UID, " ", w.Resource)
		runs := objects[key]
		if n := len(runs); n == 0 || runs[n-1].revision != w.revision {
			runs = append(runs, &run{revision: w.revision, first: w, contents: sets.New[string]()})
			objects[key] = runs
		}
		current := runs[len(runs)-1]
		current.last = w
		current.contents.Insert(content(w.Write))
	}
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		runs := objects[key]
		for i := 2; i < len(runs); i++ {
			before, between, again := runs[i-2], runs[i-1], runs[i]
			if before.revision != again.revision || !before.contents.HasAny(again.contents.UnsortedList()...) ||
				between.contents.Has(content(again.first.Write)) || j.orphaned(again.first.Write) {
				continue
			}
			if !j.flippedTo(again.revision, before.first.Version, again.first.Version) {
				j.add(Returned, "%s: %v, after %v and %v, although the default revision did not return to %s",
					election, again.first, before.last, between.last, again.revision)
			}
		}
	}
}

func (j *judge) flippedTo(revision string, after, before uint64) bool {
	return slices.ContainsFunc(j.flips, func(f flip) bool { return f.revision == revision && f.version > after && f.version < before })
}

// content returns the content of a write without the fields that every write changes.
func content(w audit.Write) string {
	parts := map[string]any{"labels": at[any](w.Object, "metadata", "labels"), "annotations": at[any](w.Object, "metadata", "annotations")}
	if strings.HasSuffix(w.Resource, "/status") {
		parts = map[string]any{"status": withoutTimes(at[any](w.Object, "status"))}
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
	for _, g := range j.Guards {
		if len(all[g.Lock]) == 0 {
			j.add(Incomplete, "no write is guarded by %s", g.Lock)
		}
	}
	if len(j.flips) == 0 {
		j.add(Incomplete, "there was never a default revision")
	}
	for _, w := range j.history.Unanswered() {
		if election, _ := j.guardOf(w); election != "" {
			j.verdict.Figures.Unanswered++
		}
	}
}

// at returns the value at a path of keys, or the zero value.
func at[T any](object map[string]any, path ...string) T {
	found, _, _ := unstructured.NestedFieldNoCopy(object, path...) // nil with an error
	of, _ := found.(T)
	return of
}

func text(object map[string]any, path ...string) string { return at[string](object, path...) }

// parents returns the Gateways that a route names. They are in its own namespace.
func parents(route map[string]any) (names []string) {
	for _, entry := range at[[]any](route, "spec", "parentRefs") {
		ref, _ := entry.(map[string]any)
		names = append(names, text(ref, "name"))
	}
	return names
}
