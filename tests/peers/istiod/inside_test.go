package istiod

import (
	"fmt"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/tests/upgrade/rollout"
)

// defaultTag is the webhook that names the default revision.
const defaultTag = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: istio-revision-tag-default, labels: {istio.io/rev: %s, istio.io/tag: default}}
`

// Two revisions of the real istiod under load, once as they are and once with incumbent's elections.
func TestInside(t *testing.T) {
	programs := map[string]string{"stock": program(t, "ISTIOD"), "inside": program(t, "ISTIOD_INSIDE")}
	for _, image := range []string{"stock", "inside"} {
		t.Run(image, func(t *testing.T) {
			l := start(t, programs, func(o *rollout.Options) {
				o.WithoutFence = true // it would reject the late writes
				o.WithoutGateways = true
			})
			overlapping, row := l.flipUnderLoad(image)
			t.Logf("\n| elections of istiod | changes | two active | longest overlap | longest time without a leader | until the new revision leads | late writes | writes of their locks |\n%s", row)
			if image == "inside" && overlapping > 0 {
				t.Errorf("with incumbent's elections two istiods were active in %d of %d changes", overlapping, *flips)
			}
		})
	}
}

// flipUnderLoad installs two revisions of an istiod and changes the default revision between them. It returns the number of
// changes with two active istiods, and a row of figures.
func (l *lab) flipUnderLoad(image string) (overlapping int, row string) {
	l.t.Helper()
	ctx, both := l.t.Context(), []string{stable, canary}
	l.kubectl(fmt.Sprintf(defaultTag, stable), "apply", "-f", "-")
	for _, revision := range both {
		l.install(revision, image, 1)
	}
	l.awaitLeads(stable)
	harness.Must(l.t, l.StartLoad(ctx))
	var worst figures
	since := l.version()
	for i := range *flips {
		revision := both[(i+1)%2]
		began := time.Now()
		harness.Must(l.t, l.FlipLabel(ctx, revision))
		l.awaitLeads(revision)
		f := l.sharedFigures(began, time.Now())
		if f.overlap > 0 {
			overlapping++
		}
		worst.overlap, worst.idle, worst.until = max(worst.overlap, f.overlap), max(worst.idle, f.idle), max(worst.until, f.until)
		l.t.Logf("%s, change %d to %s: overlap %v, without a leader %v, new leader after %v", image, i+1, revision, f.overlap, f.idle, f.until)
	}
	harness.Must(l.t, l.StopLoad())
	report, err := l.Audit()
	harness.Must(l.t, err)
	late, judged := 0, 0
	for _, lock := range report.Locks {
		late += lock.Breaches
		judged += lock.Judged
	}
	if judged == 0 || image == "inside" && late > 0 || image == "stock" && late == 0 {
		l.t.Errorf("%s: %d of %d writes are late", image, late, judged)
	}
	row = fmt.Sprintf("| %s | %d | %d | %v | %v | %v | %d of %d | %d |", image, *flips, overlapping, worst.overlap.Round(time.Millisecond),
		worst.idle.Round(time.Millisecond), worst.until.Round(time.Millisecond), late, judged, l.lockWrites(since))
	return overlapping, row
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
	harness.Must(l.t, err)
	for w := range h.All() {
		if w.Version > since && w.Namespace == home && w.Resource == "configmaps" && (w.Name == shared[0] || w.Name == shared[1]) {
			n++
		}
	}
	return n
}
