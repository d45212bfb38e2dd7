package istiod

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/tests/upgrade/rollout"
)

var flips = flag.Int("flips", 10, "number of changes of the default revision to istiod and back")

// gateways are a namespace per revision with a Gateway and a route.
const gateways = `
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s-gateways, labels: {istio.io/rev: %[1]s}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: %[1]s-gateways, labels: {istio.io/rev: %[1]s}}
spec:
  gatewayClassName: istio
  listeners: [{name: http, port: 80, protocol: HTTP}]
`

// row is a row of the report.
type row struct {
	scenario string
	figures  figures
	statuses string
}

// report runs scenarios in one cluster.
type report struct {
	*lab
	rows  []row
	edits int
}

// scenario runs steps and adds a row.
func (r *report) scenario(name string, revisions []string, steps func()) {
	r.t.Helper()
	r.Step(name)
	began := time.Now()
	steps()
	worst := r.sharedFigures(began, time.Now())
	statuses := r.editGateways(revisions)
	r.rows = append(r.rows, row{name, worst, statuses})
	r.t.Logf("%s: overlap %v, without a leader %v, statuses by %s, order %v", name, worst.overlap, worst.idle, statuses, worst.order)
}

// editGateways changes the Gateway of each revision, waits until its status has the new generation, and returns the writers.
func (r *report) editGateways(revisions []string) string {
	r.t.Helper()
	r.edits++
	var all []string
	for _, revision := range revisions {
		namespace, since := revision+"-gateways", r.version()
		r.kubectl("", "-n", namespace, "patch", "gateways.gateway.networking.k8s.io", "web", "--type=json",
			"-p", fmt.Sprintf(`[{"op":"replace","path":"/spec/listeners/0/port","value":%d}]`, 8000+r.edits))
		r.await("the status of "+namespace+"/web is current", func() string {
			got := r.kubectl("", "-n", namespace, "get", "gateways.gateway.networking.k8s.io", "web", "-o",
				`jsonpath={.metadata.generation} {.status.conditions[?(@.type=="Accepted")].observedGeneration}`)
			if generations := strings.Fields(got); len(generations) != 2 || generations[0] != generations[1] {
				return "generation and observed generation: " + got
			}
			return ""
		})
		var writers []string
		r.await("the audit log has the write, which the API server logs after its response", func() string {
			if writers = r.writers(namespace, since); len(writers) == 0 {
				return "no write of a status in " + namespace
			}
			return ""
		})
		if len(writers) != 1 || !strings.HasSuffix(writers[0], "-"+revision) {
			r.t.Errorf("the status of %s/web was written by %v", namespace, writers)
		}
		all = append(all, writers...)
	}
	return strings.Join(all, ", ")
}

func (r *report) flip(revision string) {
	r.t.Helper()
	harness.Must(r.t, r.FlipLabel(r.t.Context(), revision)) // the chart accepts revisions of incumbent only
	r.awaitLeads(revision)
}

// incumbent installs or scales incumbent's revision.
func (r *report) incumbent(replicas int32) {
	r.t.Helper()
	ctx := r.t.Context()
	harness.Must(r.t, r.Apply(ctx, rollout.Release{Revision: stable, Replicas: replicas}))
	harness.Must(r.t, r.AwaitReady(ctx, stable, int(replicas)))
	if replicas > 0 {
		harness.Must(r.t, r.AwaitOwnElections(ctx, stable))
	}
}

// Every order of installation, restart, change of the default, crash and removal. No two processes may run the work of an
// election at the same time, except where istiod overwrites a leader of incumbent.
func TestScenarios(t *testing.T) {
	r := &report{lab: start(t, map[string]string{"istiod": program(t, "ISTIOD")}, nil)}
	ctx, both := t.Context(), []string{stable, canary}
	for _, revision := range both {
		r.kubectl(fmt.Sprintf(gateways, revision), "apply", "-f", "-")
	}
	r.scenario("incumbent is installed and is the default", both[:1], func() {
		r.incumbent(2)
		harness.Must(r.t, r.Flip(ctx, stable))
		r.awaitLeads(stable)
	})
	r.scenario("istiod is installed second", both, func() { r.install(canary, "istiod", 1) })
	r.scenario("istiod restarts", both, func() {
		r.uninstall(canary)
		r.install(canary, "istiod", 1)
	})
	r.scenario("incumbent restarts", both, func() {
		r.incumbent(0)
		r.incumbent(2)
		r.awaitLeads(stable)
	})
	r.scenario("incumbent's leader is killed", both, func() {
		r.kill()
		r.awaitLeads(stable)
	})
	r.scenario(fmt.Sprintf("the default changes to istiod and back, %d times", *flips), both, func() {
		for range *flips {
			r.flip(canary)
			r.flip(stable)
		}
	})
	r.scenario("the default changes to istiod", both, func() { r.flip(canary) })
	r.scenario("istiod is killed while it leads", both, func() {
		r.kill()
		r.awaitLeads(canary)
	})
	r.scenario("incumbent is uninstalled while istiod leads", both[1:], func() { harness.Must(r.t, r.Uninstall(ctx, stable)) })
	r.scenario("incumbent is installed second", both, func() { r.incumbent(2) })
	r.scenario("istiod is uninstalled while it leads", both[:1], func() {
		r.uninstall(canary)
		r.flip(stable)
	})
	r.scenario("istiod is installed, and incumbent is uninstalled while it leads", both[1:], func() {
		r.install(canary, "istiod", 1)
		harness.Must(r.t, r.Uninstall(ctx, stable))
		r.awaitLeads(canary)
	})
	r.print()
	v := r.verdict(canary)
	t.Logf("audit log:\n%v", v.Figures)
	if err := v.Err("unelected", "interleaved", "late"); err != nil {
		t.Error(err)
	}
}

func (r *report) print() {
	var text strings.Builder
	fmt.Fprint(&text, "\n| scenario | active, in this order | overlap | longest time without a leader | status of Gateways written by |\n| --- | --- | --- | --- | --- |\n")
	for _, row := range r.rows {
		order := row.figures.order
		for i := range order { // the name without the hash of the Pod
			order[i] = strings.Join(strings.Split(order[i], "-")[:2], "-")
		}
		order = slices.Compact(order)
		if len(order) > 4 {
			order = append(order[:4], "…")
		}
		fmt.Fprintf(&text, "| %s | %s | %v | %v | %s |\n", row.scenario, strings.Join(order, ", "),
			row.figures.overlap.Round(time.Millisecond), row.figures.idle.Round(100*time.Millisecond), row.statuses)
	}
	r.t.Log(text.String())
}
