package inspect

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// Obstacle is an annotation that prevents a leader or a change of the leader.
type Obstacle struct {
	// Annotation is the annotation, or the field of the Lease.
	Annotation string `json:"annotation"`
	Effect     string `json:"effect"`
	// Remove is the command that removes it. It is empty if no command can.
	Remove string `json:"remove,omitempty"`
	// Severe is true if two leaders can be active, or if the leader will lose the lock.
	Severe bool `json:"severe,omitempty"`
}

// obstacles returns the obstacles of an election.
func (e Election) obstacles() (all []Obstacle) {
	add := func(annotation, format string, args ...any) {
		all = append(all, Obstacle{Annotation: annotation, Effect: fmt.Sprintf(format, args...), Remove: e.removal(annotation)})
	}
	if h := e.Hold; h != nil {
		all = append(all, Obstacle{
			Annotation: record.HoldAnnotation, Remove: fmt.Sprintf("electionctl -n %s resume %s", e.Namespace, e.Name),
			Effect: fmt.Sprintf("%s by %s: for %s no candidate can acquire the lock by rank", h.Reason, cmp.Or(h.Requester, "?"), Seconds(h.Seconds)),
		})
		if h.Note != "" {
			all[0].Effect += " (reason: " + h.Note + ")"
		}
	}
	e.requestObstacle(add)
	e.coordinationObstacles(add)
	severe := func(annotation, format string, args ...any) {
		add(annotation, format, args...)
		all[len(all)-1].Severe = true
	}
	if len(e.finalizers) > 0 {
		severe(finalizers, "the %s is being deleted, and the term of its leader ends when its finalizers (%s) are removed", e.Lock, oneLine(strings.Join(e.finalizers, ", ")))
	}
	if e.Former != "" && e.Former != e.Holder && e.Led() {
		severe(record.MarkerAnnotation, "%s led in an earlier term, was overwritten by another elector, and may be active until its lease ends", e.Former)
	}
	for _, field := range slices.Sorted(maps.Keys(e.long)) {
		name, _, _ := strings.Cut(field, " ")
		all = append(all, Obstacle{Annotation: field, Effect: e.long[field], Remove: e.removal(name)})
	}
	for _, annotation := range e.invalid {
		add(annotation, "the value is invalid, so candidates ignore it")
	}
	if e.State == Nominated && !e.Coordinated() && e.absent(e.Holder) {
		add(record.NominatedAnnotation, "the nominated holder %s cannot acquire the lock", e.Holder)
	}
	if e.State == Free && e.Former != "" {
		add(record.MarkerAnnotation, "%s led in an earlier term and may still be active, so the next holder waits for a lease duration", e.Former)
	}
	return all
}

// requestObstacle adds the request for a handover that has no effect, or prevents another handover.
func (e Election) requestObstacle(add func(field, format string, args ...any)) {
	switch r := e.Request; {
	case r == nil:
	case r.Refused != "":
		add(record.HandoverRequestAnnotation, "the leader refused to hand over to %s: %s", cmp.Or(r.Identity, "any candidate"), r.Refused)
	case r.Identity == "":
		add(record.HandoverRequestAnnotation, "%s requested that the leader steps down and does not campaign for %s", cmp.Or(r.Requester, "?"), Seconds(r.HoldSeconds))
	case e.absent(r.Identity):
		add(record.HandoverRequestAnnotation, "%s requested a handover to %s, which cannot acquire the lock", cmp.Or(r.Requester, "?"), r.Identity)
	}
}

// coordinationObstacles adds the obstacles of a coordinated election.
func (e Election) coordinationObstacles(add func(field, format string, args ...any)) {
	strategy, preferred := record.StrategyAnnotation, record.PreferredHolderAnnotation
	if e.inSpec {
		strategy, preferred = specStrategy, specPreferredHolder
	}
	switch requested := func(c Candidate) bool { return c.Strategy == e.Strategy }; {
	case e.Strategy == "" || slices.ContainsFunc(e.Candidates, requested):
	case len(e.Candidates) > 0:
		add(strategy, "a coordinator must choose the leader by %s, which no candidate requests", e.Strategy)
	case !e.Led():
		add(strategy, "a coordinator must choose the leader by %s; remove it if no coordinator runs", e.Strategy)
	}
	if e.Strategy == "" && e.Preferred != "" && e.Preferred != e.Holder {
		add(preferred, "it remained after its strategy was removed; candidates of a free lock wait up to a lease duration for %s", e.Preferred)
	} else if e.Preferred != e.Holder && e.absent(e.Preferred) {
		add(preferred, "the leader should hand over to %s, which cannot acquire the lock", e.Preferred)
	}
}

// absent reports whether the candidates are known and a process is not among them, or is late.
func (e Election) absent(identity string) bool {
	return identity != "" && len(e.Candidates) > 0 &&
		!slices.ContainsFunc(e.Candidates, func(c Candidate) bool { return c.Identity == identity && !c.Late })
}

// Fields that are obstacles.
const (
	finalizers          = "metadata.finalizers"
	specStrategy        = "spec.strategy"
	specPreferredHolder = "spec.preferredHolder"
)

// removal returns the command that removes an annotation, or a field of a Lease.
func (e Election) removal(annotation string) string {
	switch annotation {
	case specStrategy: // the API server rejects a preferred holder without a strategy
		return fmt.Sprintf(`kubectl -n %s patch lease %s --type=merge -p '{"spec":{"strategy":null,"preferredHolder":null}}'`, e.Namespace, e.Name)
	case specPreferredHolder:
		return fmt.Sprintf(`kubectl -n %s patch lease %s --type=merge -p '{"spec":{"preferredHolder":null}}'`, e.Namespace, e.Name)
	}
	switch {
	case annotation == finalizers:
		return fmt.Sprintf(`kubectl -n %s patch %s --type=merge -p '{"metadata":{"finalizers":null}}'`, e.Namespace, e.Object())
	case annotation == record.LeaseDuration && e.Lock == Lease:
		return fmt.Sprintf(`kubectl -n %s patch %s --type=merge -p '{"spec":{"leaseDurationSeconds":%d}}'`, e.Namespace, e.Object(), usualLease/time.Second)
	case annotation == record.LeaseDuration: // the version is that of the record, so a leader that has renewed since is not overwritten
		return fmt.Sprintf("kubectl -n %s annotate %s --overwrite --resource-version=%s %s", e.Namespace, e.Object(), e.Version,
			Quoted(k8sresourcelock.LeaderElectionRecordAnnotationKey+"="+e.healed))
	}
	command := fmt.Sprintf("kubectl -n %s annotate %s %s-", e.Namespace, e.Object(), annotation)
	if annotation == record.StrategyAnnotation && e.Preferred != "" {
		command += " " + record.PreferredHolderAnnotation + "-"
	}
	return command
}

// healed returns a record with the usual lease, in the encoding of a ConfigMap. The rest of the record stays, so its holder keeps the
// lock if it renews, and candidates wait for the usual lease.
func healed(r k8sresourcelock.LeaderElectionRecord) string {
	r.LeaseDurationSeconds = int(usualLease / time.Second)
	raw, _ := json.Marshal(r) // its types cannot fail
	return string(PrintableJSON(raw))
}

// Quoted returns s as one word of a shell. A stranger may have written it.
func Quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// Seconds returns a duration in words, for example 7d.
func Seconds(seconds int) string { return duration.HumanDuration(time.Duration(seconds) * time.Second) }

// Object returns the lock object as an argument of kubectl.
func (e Election) Object() string {
	return string(e.Kind()) + "/" + e.Name
}
