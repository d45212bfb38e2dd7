package istiod

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"incumbent.dev/incumbent/tests/upgrade/rollout"
)

// defaultTag is the webhook that names the default revision.
const defaultTag = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: istio-revision-tag-default, labels: {istio.io/rev: %s, istio.io/tag: default}}
`

// Two revisions of the real istiod, once as they are and once with incumbent's elections.
func TestInside(t *testing.T) {
	l := start(t, map[string]string{"stock": program(t, "ISTIOD"), "inside": program(t, "ISTIOD_INSIDE")}, func(o *rollout.Options) {
		o.WithoutFence, o.WithoutGateways = true, true
	})
	both := []string{stable, canary}
	var text strings.Builder
	fmt.Fprint(&text, "\n| elections of istiod | changes | two active | longest overlap | longest time without a leader | until the new revision leads, longest | writes of their locks |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, image := range []string{"stock", "inside"} {
		l.kubectl(fmt.Sprintf(defaultTag, stable), "apply", "-f", "-")
		for _, revision := range both {
			l.install(revision, image, 1)
		}
		l.awaitLeads(stable)
		var worst figures
		var overlapping int
		var slowest time.Duration
		since := l.version()
		for i := range *flips {
			revision := both[(i+1)%2]
			began := time.Now()
			l.must(l.FlipLabel(t.Context(), revision))
			l.awaitLeads(revision)
			f := l.sharedFigures(began, time.Now())
			if f.overlap > 0 {
				overlapping++
			}
			worst.overlap, worst.idle, slowest = max(worst.overlap, f.overlap), max(worst.idle, f.idle), max(slowest, f.until)
			t.Logf("%s, change %d to %s: overlap %v, without a leader %v, new leader after %v", image, i+1, revision, f.overlap, f.idle, f.until)
		}
		fmt.Fprintf(&text, "| %s | %d | %d | %v | %v | %v | %d |\n", image, *flips, overlapping,
			worst.overlap.Round(time.Millisecond), worst.idle.Round(time.Millisecond), slowest.Round(time.Millisecond), l.lockWrites(since))
		if image == "inside" && overlapping > 0 {
			t.Errorf("with incumbent's elections two istiods were active in %d of %d changes", overlapping, *flips)
		}
		for _, revision := range both {
			l.uninstall(revision)
		}
		l.kubectl("", "-n", home, "delete", "configmaps", shared[0], shared[1])
	}
	t.Log(text.String())
}

// sharedFigures returns the worst figures of the shared elections in a period.
func (l *lab) sharedFigures(from, to time.Time) (worst figures) {
	l.t.Helper()
	spans := l.spans()
	for _, election := range shared {
		f := measure(spans, election, from, to)
		worst.overlap, worst.idle, worst.until = max(worst.overlap, f.overlap), max(worst.idle, f.idle), max(worst.until, f.until)
		worst.order = f.order
	}
	return worst
}

// lockWrites counts the writes of the shared locks since a version.
func (l *lab) lockWrites(since uint64) (n int) {
	l.t.Helper()
	h, err := l.History()
	l.must(err)
	for w := range h.All() {
		if w.Version > since && w.Namespace == home && w.Resource == "configmaps" && (w.Name == shared[0] || w.Name == shared[1]) {
			n++
		}
	}
	return n
}
